"""Translates the AWS SDK's errors into kedge's, which say what failed, why, and how to fix it.

Only errors that any call can meet are here: credentials, permissions, the network, throttling. The module that makes a
call handles the codes of that call alone (no capacity, a quota).
"""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - the SDK's name
    CredentialRetrievalError,
    HTTPClientError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    RefreshWithMFAUnsupportedError,
    SSOError,
    TokenRetrievalError,
)

from orchestrator.adapters.aws_answers import UnreadableAnswerError
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError

SIGN_IN = "run `aws configure` or `aws sso login`, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
"""The ways to give the SDK credentials."""

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
REFUSED = frozenset(
    {
        "AuthFailure",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Error codes for credentials that AWS doesn't accept."""

# The answer to a HEAD has no body: its code is the status.
FORBIDDEN = frozenset({"403", "AccessDenied", "AccessDeniedException", "UnauthorizedAccess", "UnauthorizedOperation"})
"""Error codes for a permission that is missing or has been revoked."""

SCP = "service control policy"
"""What the message names if an organization's policy denies the call."""

_THROTTLED = frozenset({"RequestLimitExceeded", "SlowDown", "Throttling", "ThrottlingException"})
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    SSOError,
)

_BAD_REQUESTS: tuple[tuple[type[BotoCoreError] | tuple[type[BotoCoreError], ...], str], ...] = (
    (ProfileNotFound, "see `aws configure list-profiles`, and set AWS_PROFILE to one of them"),
    (InvalidRegionError, "use AWS's name, for example --region eu-west-1"),
    # The SDK asks for an MFA code once in a session, and the code's hour is over.
    (RefreshWithMFAUnsupportedError, "run the command again in a terminal: it asks for a new MFA code, and continues"),
    (_NO_CREDENTIALS, SIGN_IN),
)
"""Errors of the user's own configuration, and their fixes."""


def code_of(err: ClientError) -> str:
    """Return AWS's error code, such as `AccessDenied`."""
    return str(err.response.get("Error", {}).get("Code", ""))


def message_of(err: ClientError) -> str:
    """Return AWS's error message, in one line."""
    return " ".join(str(err.response.get("Error", {}).get("Message", "")).split())


def is_denied(err: KedgeError) -> bool:
    """Tell whether AWS has refused a call because of a missing permission."""
    return isinstance(err.__cause__, ClientError) and code_of(err.__cause__) in FORBIDDEN


def is_throttled(err: BaseException) -> bool:
    """Tell whether AWS has refused a call because of its rate, even after the SDK's own retries."""
    return isinstance(err, ClientError) and code_of(err) in _THROTTLED


def translate(err: ClientError | BotoCoreError, what: str) -> KedgeError:
    """Translate an SDK error into one of kedge's.

    Args:
        err: what the SDK raised; the caller raises the result `from` it.
        what: what couldn't be done, for example "the machine can't be created".
    """
    return _translate_answer(err, what) if isinstance(err, ClientError) else _translate_failure(err, what)


def _translate_answer(err: ClientError, what: str) -> KedgeError:
    code = code_of(err)
    why = f"AWS answered {err.operation_name} with {code}: {message_of(err)}"
    if code in _EXPIRED:
        return KedgeError(what, why="the AWS credentials have expired", fix=SIGN_IN)
    if code in REFUSED:
        return KedgeError(what, why=f"AWS doesn't accept the credentials ({code})", fix=SIGN_IN)
    if code in FORBIDDEN and SCP in why:
        return KedgeError(
            what, why=why, fix="choose another --region, or have your organization's administrator allow this one"
        )
    if code in FORBIDDEN:
        allow = f"have an administrator allow {err.operation_name}, or use another profile"
        return KedgeError(what, why=why, fix=f"{allow}; docs/aws-permissions.md has the policy that is enough")
    if code in _THROTTLED:
        return KedgeError(what, why=why, fix="try again in a minute")
    return KedgeError(what, why=why)


def _translate_failure(err: BotoCoreError, what: str) -> KedgeError:
    if isinstance(err, UnreadableAnswerError):
        return UnreachableError(what, why=err.why, fix=err.fix)
    why = " ".join(str(err).split())
    if isinstance(err, NoRegionError):
        return no_region(what)
    for kinds, fix in _BAD_REQUESTS:
        if isinstance(err, kinds):
            return BadRequestError(what, why=why, fix=fix)
    if isinstance(err, ConnectionError | HTTPClientError):
        return UnreachableError(what, why=why, fix="check the network, and the region's name")
    return KedgeError(what, why=why)


def no_region(what: str) -> BadRequestError:
    """Make the error for a request without a region."""
    return BadRequestError(
        what,
        why="no AWS region is set",
        fix="use --region eu-west-1, set AWS_REGION, or run `aws configure`",
    )
