"""Which function answers which request, and the scope that a token needs for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.cloudbox.digitalocean.call import Answer, Call, not_found

if TYPE_CHECKING:
    from tests.cloudbox.digitalocean.cloud import Cloud

Handler = Callable[["Cloud", Call], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One path template with a method; `scopes`: a token with all of them may call it."""

    method: str
    template: str
    scopes: tuple[str, ...]
    handler: Handler
    pattern: re.Pattern[str]


class Routes:
    """A table of routes; the more specific of two is the one that was entered first."""

    def __init__(self, *parts: Routes) -> None:
        self._routes: list[Route] = [route for part in parts for route in part]

    def __iter__(self) -> Iterator[Route]:
        """Go through the routes in the order of their entry."""
        return iter(self._routes)

    def on(self, method: str, template: str, *scopes: str) -> Callable[[Handler], Handler]:
        """Enter the decorated function for a path template below /v2, such as `/droplets/{droplet_id}`."""
        pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", f"/v2{template}"))

        def enter(handler: Handler) -> Handler:
            route = Route(method=method, template=f"/v2{template}", scopes=scopes, handler=handler, pattern=pattern)
            self._routes.append(route)
            return handler

        return enter

    def find(self, call: Call) -> tuple[Route, Call]:
        """Return a call's route, and the call with the parts of its path.

        Raises:
            ApiError: nothing answers here.
        """
        for route in self._routes:
            matched = route.pattern.fullmatch(call.path)
            if matched and route.method == call.method:
                return route, replace(call, params=matched.groupdict())
        raise not_found()
