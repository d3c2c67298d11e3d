"""Refuses requests that break AWS's own model of its APIs, in the words of the service that is asked."""

from __future__ import annotations

import json
from xml.etree.ElementTree import ParseError

from tests.cloudbox.aws.model.check import Kind, Violation, check
from tests.cloudbox.aws.model.groups import check_permissions
from tests.cloudbox.aws.model.policies import check_policies
from tests.cloudbox.aws.model.sent import Sent, rebuild
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call

_LONGEST = 120


def check_request(call: Call) -> None:
    """Compare a request with the model of its operation; one that is in no model is left to moto.

    fact: aws-unknown-parameters

    Raises:
        AwsError: as the service would answer.
    """
    try:
        sent = rebuild(call.service, call.action, call.params, query=call.query, headers=call.headers, body=call.body)
    except (ParseError, json.JSONDecodeError) as err:
        raise AwsError("MalformedXML" if call.service == "s3" else "SerializationException", str(err)) from err
    if sent is None:
        return
    if wrong := check(sent):
        raise _refusal(call.service, sent, wrong[0])
    if call.service == "iam":
        check_policies(call.action, sent.params)
    if call.service == "ec2" and "IpPermissions" in sent.params:
        check_permissions(sent.params["IpPermissions"])


def _refusal(service: str, sent: Sent, wrong: Violation) -> AwsError:
    value = wrong.value if len(wrong.value) <= _LONGEST else f"{wrong.value[:_LONGEST]}..."
    if service == "ec2":
        return _refusal_of_ec2(wrong, value)
    if service == "s3":
        code = {Kind.UNKNOWN: "InvalidRequest", Kind.MISSING: "InvalidRequest", Kind.INVALID: "InvalidArgument"}
        return AwsError(code[wrong.kind], f"{wrong.name}: {wrong.kind}: {value}: {wrong.why}")
    of_query = sent.operation.service_model.protocol == "query"
    return AwsError("ValidationError" if of_query else "ValidationException", _said(wrong, value))


def _refusal_of_ec2(wrong: Violation, value: str) -> AwsError:
    match wrong.kind:
        case Kind.UNKNOWN:
            return AwsError("UnknownParameter", f"The parameter {wrong.name} is not recognized")
        case Kind.MISSING:
            return AwsError("MissingParameter", f"The request must contain the parameter {wrong.name}")
        case Kind.INVALID:
            return AwsError(
                "InvalidParameterValue", f"Value ({value}) for parameter {wrong.name} is invalid. {wrong.why}"
            )


def _said(wrong: Violation, value: str) -> str:
    name = wrong.name[:1].lower() + wrong.name[1:]
    match wrong.kind:
        case Kind.UNKNOWN:
            why = f"Value at '{name}' is not a parameter of this operation"
        case Kind.MISSING:
            why = f"Value null at '{name}' failed to satisfy constraint: Member must not be null"
        case Kind.INVALID:
            why = f"Value '{value}' at '{name}' failed to satisfy constraint: {wrong.why}"
    return f"1 validation error detected: {why}"
