"""Lambda's refusals: a status, and an envelope with a code, a sentence and usually a suggestion.

fact: lambda-error-codes
"""

from __future__ import annotations

from tests.cloudbox.rest.call import Answer, ApiError

_KNOWN = {
    "global/invalid-api-key": (401, "API key was invalid, expired, or deleted.", "Check your API key."),
    "global/account-inactive": (403, "Your account is inactive.", "Make sure you have a valid payment method."),
    "global/invalid-address": (403, "Your billing address is invalid.", "Make sure your billing address is valid."),
    "global/invalid-parameters": (400, "Invalid request data.", ""),
    "global/quota-exceeded": (400, "Quota exceeded.", "Contact Support to increase your quota."),
    "global/object-does-not-exist": (404, "Specified object does not exist.", "Check the ID or name and try again."),
    "global/not-found": (404, "The requested resource was not found.", ""),
    "global/duplicate": (400, "An object with this name exists.", ""),
    "global/conflict": (409, "The request conflicts with the current state of the resource.", ""),
    "instance-operations/launch/insufficient-capacity": (400, "Not enough capacity to fulfill launch request.", ""),
    "instance-operations/launch/file-system-in-wrong-region": (400, "The filesystem is in another region.", ""),
    "filesystems/filesystem-in-use": (400, "Filesystem is in use.", ""),
    "firewall-rulesets/firewall-ruleset-in-use": (
        400,
        "Firewall ruleset is in use by one or more instances.",
        "Terminate all instances that are using the ruleset before deleting it.",
    ),
    # Not in the description, but observed: fact: lambda-unknown-codes.
    "global/unknown": (400, "An unknown error occurred.", ""),
}


class LambdaError(ApiError):
    """A refusal with one of Lambda's codes, at its usual status unless `status` is given."""

    def __init__(self, code: str, message: str = "", *, status: int = 0, is_described: bool = True) -> None:
        usual, words, suggestion = _KNOWN[code]
        body = envelope(code, message or words, suggestion)
        described = is_described and code != "global/unknown"
        super().__init__(Answer(status=status or usual, body=body, is_described=described))


def envelope(code: str, message: str, suggestion: str = "") -> dict[str, dict[str, str]]:
    """Return the body of a refusal."""
    return {"error": {"code": code, "message": message, **({"suggestion": suggestion} if suggestion else {})}}


def invalid(message: str) -> LambdaError:
    """Return the refusal of an invalid request."""
    return LambdaError("global/invalid-parameters", message)


def missing(what: str) -> LambdaError:
    """Return the refusal for a resource that doesn't exist."""
    return LambdaError("global/object-does-not-exist", f"Specified {what} does not exist.")


def blocked(status: int, number: int, headers: dict[str, str] | None = None) -> ApiError:
    """Return Cloudflare's answer to a request that doesn't reach Lambda: no JSON. fact: lambda-cloudflare-answers."""
    kind = {"Content-Type": "text/plain; charset=UTF-8", **(headers or {})}
    return ApiError(Answer(status=status, text=f"error code: {number}\n", headers=kind, is_described=False))
