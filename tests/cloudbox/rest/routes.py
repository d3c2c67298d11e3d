"""Maps requests to the functions that answer them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tests.cloudbox.rest.call import Answer, Call

C = TypeVar("C")
"""The type of a box's cloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[C]):
    """One method with a path template; a token needs all of the `scopes`."""

    method: str
    template: str
    scopes: tuple[str, ...]
    handler: Callable[[C, Call], Answer]
    pattern: re.Pattern[str]


class Routes(Generic[C]):
    """A table of routes; the first that matches counts, so specific ones have to be added first."""

    def __init__(self, prefix: str, *parts: Routes[C]) -> None:
        self._prefix = prefix
        self._routes: list[Route[C]] = [route for part in parts for route in part]

    def __iter__(self) -> Iterator[Route[C]]:
        """Iterate over the routes in the order in which they were added."""
        return iter(self._routes)

    def on(
        self, method: str, template: str, *scopes: str
    ) -> Callable[[Callable[[C, Call], Answer]], Callable[[C, Call], Answer]]:
        """Add the decorated function for a path template below the prefix, such as `/droplets/{droplet_id}`."""
        path = f"{self._prefix}{template}"
        pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))

        def enter(handler: Callable[[C, Call], Answer]) -> Callable[[C, Call], Answer]:
            route = Route(method=method, template=path, scopes=scopes, handler=handler, pattern=pattern)
            self._routes.append(route)
            return handler

        return enter

    def find(self, call: Call) -> tuple[Route[C], Call] | None:
        """Return a call's route, and the call with its path parameters; None if no route matches."""
        for route in self._routes:
            matched = route.pattern.fullmatch(call.path)
            if matched and route.method == call.method:
                return route, replace(call, params=matched.groupdict())
        return None

    def methods(self, call: Call) -> set[str]:
        """Return the methods that have a route at a call's path."""
        return {route.method for route in self._routes if route.pattern.fullmatch(call.path)}
