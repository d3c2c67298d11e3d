"""Pages of a listing: 20 things each unless the call says otherwise, with links to the pages around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from tests.cloudbox.digitalocean.account.call import ApiError
from tests.cloudbox.rest.call import Answer, Call

_MOST_PER_PAGE = 200


def page(call: Call, name: str, things: Sequence[Mapping[str, Any]]) -> Answer:
    """Answer with the page of `things` that was asked for, under `name`."""
    size, number = _number(call, "per_page", 20), _number(call, "page", 1)
    if size > _MOST_PER_PAGE:
        raise ApiError(400, "bad_request", f"per_page must be at most {_MOST_PER_PAGE}")
    last = max(1, -(-len(things) // size))
    first = (number - 1) * size
    links: dict[str, str] = {}
    if number > 1:
        links |= {"first": _url(call, 1), "prev": _url(call, number - 1)}
    if number < last:
        links |= {"next": _url(call, number + 1), "last": _url(call, last)}
    body = {
        name: list(things[first : first + size]),
        "links": {"pages": links} if links else {},
        "meta": {"total": len(things)},
    }
    return Answer(body=body)


def _number(call: Call, name: str, otherwise: int) -> int:
    text = call.query.get(name, str(otherwise))
    if not text.isdecimal() or int(text) < 1:
        raise ApiError(400, "bad_request", f"{name} must be a positive number")
    return int(text)


def _url(call: Call, number: int) -> str:
    return f"{call.origin}{call.path}?{urlencode({**call.query, 'page': number})}"
