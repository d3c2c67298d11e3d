"""Refuses answers that can't be AWS's: a captive portal's page, half a document, a document with fields missing.

The SDK accepts anything as an answer. Then its parser raises errors that no caller expects, or returns less than the
SDK's own description of the service promises. All sessions get a parser that raises UnreadableAnswerError instead.
"""

from __future__ import annotations

from typing import Any, NoReturn

from botocore.exceptions import BotoCoreError
from botocore.parsers import ResponseParserError, ResponseParserFactory
from botocore.session import Session

from orchestrator.core.errors import KedgeError
from orchestrator.core.protocol.decoding import clip

_WHAT = "the answer isn't from AWS"
_FIX = "look whether a proxy, or a network that wants a login, answers in its place; then run the command again"
_PAGES = (b"<!doctype html", b"<html")
_OF_JSON = frozenset({"json", "rest-json"})
_SCALARS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "long": int,
    "boolean": bool,
    "float": (int, float),
    "double": (int, float),
}
# What the SDK's parsers raise on documents of an unexpected shape.
_LET_THROUGH = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)


class UnreadableAnswerError(KedgeError, BotoCoreError, ResponseParserError):
    """The answer is unreadable, so it is unknown whether the request had its effect.

    It is also an SDK error: code that handles SDK errors handles this one too, and adds what couldn't be done.
    """

    def __init__(self, why: str) -> None:
        Exception.__init__(self, _WHAT)
        self.what, self.why, self.fix = _WHAT, clip(" ".join(why.split())), _FIX


def check_answers(session: Session) -> None:
    """Make all clients that this session creates from now on refuse unreadable answers."""
    session.register_component("response_parser_factory", _Parsers())


class _Parsers(ResponseParserFactory):
    def create_parser(self, protocol_name: str) -> Any:
        """Return the SDK's parser of a protocol, wrapped in the checks."""
        return _Checked(super().create_parser(protocol_name), is_json=protocol_name in _OF_JSON)


class _Checked:
    def __init__(self, parser: Any, *, is_json: bool) -> None:
        self._parser = parser
        self._is_json = is_json

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def parse(self, response: dict[str, Any], shape: Any) -> Any:
        """Parse an answer.

        Raises:
            UnreadableAnswerError: it isn't an answer of AWS's.
        """
        _refuse_page(response, is_json=self._is_json)
        try:
            parsed = self._parser.parse(response, shape)
            if self._is_json and response["status_code"] < 300:
                _require_kinds(parsed, shape, "it")
        except (ResponseParserError, *_LET_THROUGH) as err:
            raise UnreadableAnswerError(f"it can't be parsed: {type(err).__name__}: {err}") from err
        return _guarded(parsed)


class _Fields(dict[str, Any]):
    """A mapping in an answer: a missing field is the answer's fault, not a KeyError."""

    def __missing__(self, name: str) -> NoReturn:
        raise UnreadableAnswerError(f"it lacks {name!r}")


class _Items(list[Any]):
    """A list in an answer: a missing item is the answer's fault, not an IndexError."""

    def __getitem__(self, at: Any) -> Any:
        try:
            return super().__getitem__(at)
        except IndexError:
            raise UnreadableAnswerError("a list in it is too short") from None


def _guarded(value: Any) -> Any:
    if type(value) is dict:
        return _Fields((name, _guarded(each)) for name, each in value.items())
    if type(value) is list:
        return _Items(_guarded(each) for each in value)
    return value


def _refuse_page(response: dict[str, Any], *, is_json: bool) -> None:
    """Refuse an HTML page, which the SDK would parse as an empty list: no machines."""
    body = response["body"]
    if isinstance(body, bytes) and response["status_code"] < 400:  # an error's body may be a page
        begins = body[:100].lstrip().lower()
        # The SDK takes a body that isn't JSON for a document without fields.
        if begins.startswith(_PAGES) or (is_json and begins and not begins.startswith(b"{")):
            raise UnreadableAnswerError(f"it begins {body[:60]!r}")


def _require_kinds(value: Any, shape: Any, where: str) -> None:
    """Compare types with the SDK's description, because its JSON parsers accept a list as a name."""
    if shape is None or value is None:
        return
    kind = shape.type_name
    if kind == "structure" and isinstance(value, dict):
        for name, member in shape.members.items():
            _require_kinds(value.get(name), member, f"{where}.{name}")
    elif kind == "list" and isinstance(value, list):
        for each in value:
            _require_kinds(each, shape.member, where)
    elif kind in _SCALARS and not isinstance(value, _SCALARS[kind]):
        raise ValueError(f"{where} is a {type(value).__name__}, not a {kind}")
