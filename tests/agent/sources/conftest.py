"""Machines and web servers for the tests of data that machines download themselves."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from tests.agent.sources.machine import Machine
from tests.agent.sources.web import Serve, Site, serving

_Served = TypeVar("_Served", bound=Site)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine's folder."""
    return Machine(tmp_path / "root")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve sites until the test ends."""
    with ExitStack() as stack:

        def begin(site: _Served, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> _Served:
            stack.enter_context(serving(site, host=host, tls=tls))
            return site

        yield begin


@pytest.fixture
def storage(serve: Serve) -> Site:
    """The host for large files; its name differs from the site's own."""
    return serve(Site(), host="localhost")
