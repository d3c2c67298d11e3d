"""Checks requests and answers against an API's OpenAPI description."""

from __future__ import annotations

import threading
from typing import Any

from jsonschema_path import SchemaPath
from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from openapi_core.exceptions import OpenAPIError
from werkzeug.datastructures import Headers, ImmutableMultiDict

from tests.cloudbox.rest.call import Answer, Call


class Description:
    """Checks against one description; `origin` is the server that the description names."""

    def __init__(self, spec: dict[str, Any], origin: str) -> None:
        config = Config(spec_validator_cls=None)  # type: ignore[arg-type]
        # It was validated when it was made; validating it again takes seconds.
        self._checker = OpenAPI(SchemaPath.from_dict(spec), config=config)
        self._origin = origin
        # The checker isn't thread-safe.
        self._lock = threading.Lock()

    def complaint_about_request(self, call: Call) -> str | None:
        """Return what is wrong with a request, in one line; None if it is valid."""
        try:
            with self._lock:
                self._checker.validate_request(_Request(call, self._origin))
        except OpenAPIError as err:
            return _explain(err)
        return None

    def complaint_about_answer(self, call: Call, answer: Answer) -> str | None:
        """Return what is wrong with an answer, in one line; None if it is valid."""
        try:
            with self._lock:
                self._checker.validate_response(_Request(call, self._origin), _Response(answer))
        except OpenAPIError as err:
            return _explain(err)
        return None


class _Request:
    def __init__(self, call: Call, origin: str) -> None:
        self.host_url = origin
        self.path = call.path
        self.method = call.method.lower()
        self.body = call.raw or None
        self.content_type = call.headers.get("content-type", "application/json").lower()
        self.parameters = RequestParameters(
            query=ImmutableMultiDict(dict(call.query)), header=Headers(dict(call.headers)), cookie=ImmutableMultiDict()
        )


class _Response:
    def __init__(self, answer: Answer) -> None:
        self.status_code = answer.status
        self.headers = Headers(dict(answer.headers))
        self.data = answer.encode()
        self.content_type = "application/json"


def _explain(err: BaseException) -> str:
    # openapi-core's error names the place; its cause names the schema that was violated.
    causes = [err]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    details = [str(error.message) for one in causes for error in getattr(one, "schema_errors", ())]
    return "; ".join(" ".join(text.split())[:400] for text in [*map(str, causes), *details])
