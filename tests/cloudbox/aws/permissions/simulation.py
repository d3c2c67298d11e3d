"""SimulatePrincipalPolicy, which moto lacks: what a user's or role's policies allow, by the box's own evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4
from xml.sax.saxutils import escape

from werkzeug.wrappers import Response

from tests.cloudbox.aws.permissions.callers import find_principal
from tests.cloudbox.aws.permissions.evaluation import Need, allows
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call

_IAM = "https://iam.amazonaws.com/doc/2010-05-08/"


def simulate(call: Call) -> Response:
    """Evaluate each action for each resource, with the given context alone.

    Raises:
        AwsError: there is no such user or role. fact: iam-simulates-users-and-roles.
    """
    principal = find_principal(call.params["PolicySourceArn"])
    if principal is None:
        raise AwsError("NoSuchEntity", f"Entity {call.params['PolicySourceArn']} cannot be found.", 404)
    context = {
        call.params[f"ContextEntries.member.{number}.ContextKeyName"]: call.params[
            f"ContextEntries.member.{number}.ContextKeyValues.member.1"
        ]
        for number in _numbers(call, "ContextEntries.member", ".ContextKeyName")
    }
    results = [
        (
            action,
            resource,
            allows(principal.policies, principal.boundary, Need(action=action, resource=resource, context=context)),
        )
        for action in _members(call, "ActionNames")
        for resource in _members(call, "ResourceArns") or ["*"]
    ]
    return Response(_render(results), content_type="text/xml")


def _render(results: Sequence[tuple[str, str, bool]]) -> str:
    members = "".join(
        f"<member><EvalActionName>{escape(action)}</EvalActionName><EvalResourceName>{escape(resource)}"
        f"</EvalResourceName><EvalDecision>{'allowed' if allowed else 'implicitDeny'}</EvalDecision></member>"
        for action, resource, allowed in results
    )
    name = "SimulatePrincipalPolicy"
    return (
        f'<{name}Response xmlns="{_IAM}"><{name}Result><IsTruncated>false</IsTruncated>'
        f"<EvaluationResults>{members}</EvaluationResults></{name}Result>"
        f"<ResponseMetadata><RequestId>{uuid4()}</RequestId></ResponseMetadata></{name}Response>"
    )


def _members(call: Call, name: str) -> list[str]:
    return [call.params[f"{name}.member.{number}"] for number in _numbers(call, f"{name}.member", "")]


def _numbers(call: Call, prefix: str, suffix: str) -> list[int]:
    found: list[int] = []
    while f"{prefix}.{len(found) + 1}{suffix}" in call.params:
        found.append(len(found) + 1)
    return found
