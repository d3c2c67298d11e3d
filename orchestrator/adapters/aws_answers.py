"""Answers that aren't AWS's: a captive portal's page, half a document, or one that lacks what AWS always tells.

The SDK takes whatever comes for an answer. It raises errors of its parser's that no caller expects, or hands over less
than its own description of the service promises. All of its sessions get a parser that says so in one way.
"""

from __future__ import annotations

from typing import Any, NoReturn

from botocore.exceptions import BotoCoreError
from botocore.parsers import ResponseParserError, ResponseParserFactory
from botocore.session import Session

from orchestrator.core.decoding import clip
from orchestrator.core.errors import KedgeError

_WHAT = "what came isn't an answer of AWS's"
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
# What the SDK's parsers let through on documents of other shapes than they expect.
_LET_THROUGH = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)


class UnreadableAnswerError(KedgeError, BotoCoreError, ResponseParserError):
    """Nobody knows what the answer says, and so whether the request had its effect.

    It is an error of the SDK's too, so that whoever handles those handles this one, and says what couldn't be done.
    """

    def __init__(self, why: str) -> None:
        Exception.__init__(self, _WHAT)
        self.what, self.why, self.fix = _WHAT, clip(" ".join(why.split())), _FIX


def check_answers(session: Session) -> None:
    """Have the clients that a session makes from now on refuse what isn't an answer."""
    session.register_component("response_parser_factory", _Parsers())


class _Parsers(ResponseParserFactory):
    def create_parser(self, protocol_name: str) -> Any:
        """Return the SDK's parser of a protocol, checked."""
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
            UnreadableAnswerError: it is none.
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
    """A part of an answer; what is missing of it is no mistake of the reader's."""

    def __missing__(self, name: str) -> NoReturn:
        raise UnreadableAnswerError(f"it lacks {name!r}")


class _Items(list[Any]):
    """A list in an answer."""

    def __getitem__(self, at: Any) -> Any:
        try:
            return super().__getitem__(at)
        except IndexError:
            raise UnreadableAnswerError("a list in it is shorter than it can be") from None


def _guarded(value: Any) -> Any:
    if type(value) is dict:
        return _Fields((name, _guarded(each)) for name, each in value.items())
    if type(value) is list:
        return _Items(_guarded(each) for each in value)
    return value


def _refuse_page(response: dict[str, Any], *, is_json: bool) -> None:
    """Refuse a page for people: an empty list in the place of one would say that there are no machines."""
    body = response["body"]
    if isinstance(body, bytes) and response["status_code"] < 400:  # a refusal may be a page
        begins = body[:100].lstrip().lower()
        # The SDK takes what is no JSON for a document without fields.
        if begins.startswith(_PAGES) or (is_json and begins and not begins.startswith(b"{")):
            raise UnreadableAnswerError(f"it begins {body[:60]!r}")


def _require_kinds(value: Any, shape: Any, where: str) -> None:
    """Compare values with the SDK's description: its parsers of JSON take a list for a name."""
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
        raise ValueError(f"{where} is a {type(value).__name__}, and no {kind}")
