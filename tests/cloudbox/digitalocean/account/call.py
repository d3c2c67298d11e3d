"""How DigitalOcean refuses: a status and a body with an id and a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from tests.cloudbox.rest import call as rest
from tests.cloudbox.rest.call import Answer, Call

NO_CONTENT = Answer(status=204)


class ApiError(rest.ApiError):
    """A refusal."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(Answer(status=status, body={"id": code, "message": message}, headers=headers or {}))


def not_found() -> ApiError:
    """Return the refusal of what isn't there."""
    return ApiError(404, "not_found", "The resource you were accessing could not be found.")


def bad_request(message: str) -> ApiError:
    """Return the refusal of what can't be read."""
    return ApiError(400, "bad_request", message)


def unprocessable(message: str) -> ApiError:
    """Return the refusal of what can't be done."""
    return ApiError(422, "unprocessable_entity", message)


def number_of(call: Call, name: str) -> int:
    """Return a part of a call's path as a number.

    Raises:
        ApiError: it isn't one, so there is no such thing.
    """
    if not call.params[name].isdecimal():
        raise not_found()
    return int(call.params[name])
