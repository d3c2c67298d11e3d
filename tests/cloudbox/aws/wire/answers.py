"""What the box answers by itself, in the protocol of the service that was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4
from xml.sax.saxutils import escape

from werkzeug.wrappers import Response

from tests.cloudbox.aws.wire.call import Call

_EC2 = "http://ec2.amazonaws.com/doc/2016-11-15/"
_QUERY_SERVICES = frozenset({"iam", "sts", "cloudformation", "sns", "autoscaling"})


class AwsError(Exception):
    """An error of the API, to be answered to the caller."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def error(call: Call, problem: AwsError) -> Response:
    """Render an error as the called service would."""
    code, message, request = escape(problem.code), escape(problem.message), uuid4()
    if call.service == "ec2":
        body = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            f"<RequestID>{request}</RequestID></Response>"
        )
    elif call.service == "s3":
        body = f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>{request}</RequestId></Error>"
    elif call.service in _QUERY_SERVICES:
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            f"<RequestId>{request}</RequestId></ErrorResponse>"
        )
    else:
        answer = json_answer({"__type": problem.code, "message": problem.message}, problem.status)
        answer.headers["x-amzn-errortype"] = problem.code
        return answer
    return Response(body, status=problem.status, content_type="text/xml")


def json_answer(payload: Any, status: int = 200) -> Response:
    """Render an answer of a service that speaks JSON."""
    return Response(json.dumps(payload), status=status, content_type="application/x-amz-json-1.1")


def ec2_list(action: str, name: str, rows: Sequence[Mapping[str, str]]) -> Response:
    """Render EC2's answer that is one list of flat items."""
    items = "".join(
        "<item>" + "".join(f"<{key}>{escape(value)}</{key}>" for key, value in row.items()) + "</item>" for row in rows
    )
    body = (
        f'<{action}Response xmlns="{_EC2}"><requestId>{uuid4()}</requestId><{name}>{items}</{name}></{action}Response>'
    )
    return Response(body, content_type="text/xml")
