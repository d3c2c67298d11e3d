"""The grammar and the sizes of IAM's policies, where moto's own check of them leaves something out."""

from __future__ import annotations

import json
import re
from typing import Any

from moto.iam.exceptions import MalformedPolicyDocument
from moto.iam.policy_validation import IAMPolicyDocumentValidator, IAMTrustPolicyDocumentValidator

from tests.cloudbox.aws.wire.answers import AwsError

_SID = re.compile(r"[A-Za-z0-9]*")
_LONGEST = {"CreateRole": 2048, "UpdateAssumeRolePolicy": 2048, "PutRolePolicy": 10240, "CreatePolicy": 6144}
"""Characters without white space, by the call that brings a policy: of trust, of a role itself, managed."""


def check_policies(action: str, params: dict[str, Any]) -> None:
    """Refuse what IAM would refuse of a call's policies.

    fact: aws-policy-sizes

    Raises:
        AwsError: MalformedPolicyDocument, or LimitExceeded.
    """
    for name in ("PolicyDocument", "AssumeRolePolicyDocument"):
        if name in params:
            check_policy(action, params[name], of_trust=name.startswith("Assume"))


def check_policy(action: str, text: str, *, of_trust: bool) -> None:
    """Refuse one policy.

    fact: aws-policy-grammar

    Raises:
        AwsError: MalformedPolicyDocument, or LimitExceeded.
    """
    try:
        (IAMTrustPolicyDocumentValidator if of_trust else IAMPolicyDocumentValidator)(text).validate()
    except MalformedPolicyDocument as err:
        raise AwsError("MalformedPolicyDocument", str(err.message)) from err
    document = json.loads(text)
    statements = document["Statement"] if isinstance(document["Statement"], list) else [document["Statement"]]
    for statement in statements:
        _check_elements(statement, of_trust=of_trust)
        if not _SID.fullmatch(statement.get("Sid", "")):
            raise AwsError("MalformedPolicyDocument", f"Statement IDs (SID) must be alphanumeric: {statement['Sid']}")
    size, longest = len(re.sub(r"\s", "", text)), _LONGEST.get(action, max(_LONGEST.values()))
    if size > longest:
        raise AwsError("LimitExceeded", f"Maximum policy size of {longest} bytes exceeded", 409)


def _check_elements(statement: dict[str, Any], *, of_trust: bool) -> None:
    if of_trust and any(name in statement for name in ("Resource", "NotResource")):
        raise AwsError("MalformedPolicyDocument", "Has prohibited field Resource")
    if not of_trust and any(name in statement for name in ("Principal", "NotPrincipal")):
        raise AwsError("MalformedPolicyDocument", "Policy document should not specify a principal.")
    if not of_trust and not any(statement.get(name) for name in ("Resource", "NotResource")):
        raise AwsError("MalformedPolicyDocument", "Policy statement must contain resources.")
