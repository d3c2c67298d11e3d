"""DigitalOcean's own description of its API, and whether a request and its answer keep to it.

The description is not part of this repository: without `../shared/specs/digitalocean-openapi.json` nothing is checked.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from jsonschema_path import SchemaPath
from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from openapi_core.exceptions import OpenAPIError
from werkzeug.datastructures import Headers, ImmutableMultiDict

from tests.cloudbox.digitalocean.call import Answer, Call

FILE = Path(__file__).parents[4] / "shared/specs/digitalocean-openapi.json"

_ORIGIN = "https://api.digitalocean.com"


class Description:
    """Checks against a description; it isn't safe for threads by itself, so that one call is checked at a time."""

    def __init__(self, file: Path) -> None:
        spec: dict[str, Any] = json.loads(file.read_text())
        # Its schemas are marked as read-only, which openapi-core takes for "never in a request".
        spec["components"]["parameters"]["ssh_key_identifier"]["schema"] = {
            "anyOf": [{"type": "integer"}, {"type": "string"}]
        }
        # Of 2026-11: it lacks regions that are sold.
        spec["components"]["schemas"]["region_slug"]["enum"].append("atl1")
        config = Config(spec_validator_cls=None)  # type: ignore[arg-type]
        # That it is valid was seen when it was made; looking again takes seconds.
        self._checker = OpenAPI(SchemaPath.from_dict(spec), config=config)
        self._lock = threading.Lock()

    def complaint_about_request(self, call: Call) -> str | None:
        """Return what is wrong with a request, in one line."""
        try:
            with self._lock:
                self._checker.validate_request(_Request(call))
        except OpenAPIError as err:
            return _explain(err)
        return None

    def complaint_about_answer(self, call: Call, answer: Answer) -> str | None:
        """Return what is wrong with an answer, in one line."""
        try:
            with self._lock:
                self._checker.validate_response(_Request(call), _Response(answer))
        except OpenAPIError as err:
            return _explain(err)
        return None


def load_description() -> Description | None:
    """Return the description where it is present."""
    return Description(FILE) if FILE.exists() else None


class _Request:
    def __init__(self, call: Call) -> None:
        self.host_url = _ORIGIN
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
        self.content_type = "application/json"
        self.data = answer.encode()


def _explain(err: BaseException) -> str:
    # What openapi-core raises names the place; its cause, the schema that was broken.
    causes = [err]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    details = [str(error.message) for one in causes for error in getattr(one, "schema_errors", ())]
    return "; ".join(" ".join(text.split())[:400] for text in [*map(str, causes), *details])
