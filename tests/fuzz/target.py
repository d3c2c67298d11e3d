"""A target: what is done with bytes from outside, and what must hold whatever they are."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.core.values.printable import clean, find_unprintable
from tests.fuzz.forms import AS_JSON, Form

CORPUS = Path(__file__).parent / "corpus"
_ERROR_LENGTH = 20_000


class BrokenPromiseError(AssertionError):
    """An input that makes the code do what it must not do."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One surface.

    Attributes:
        run: takes an input and an empty folder of its own, and raises AssertionError where a promise is broken.
        allowed: the errors by which the code may refuse an input: those that a user is shown.
        form: what an input means, where it means anything.
        tokens: pieces that mean something here, which mutations put in.
        examples: how many mutations `make test` tries.
        seconds: of processor time that no input may take.
        modules: packages whose coverage guides the fuzzer.
    """

    name: str
    run: Callable[[bytes, Path], None]
    allowed: tuple[type[Exception], ...]
    form: Form = AS_JSON
    tokens: tuple[bytes, ...] = ()
    examples: int = 200
    seconds: float = 5.0
    modules: tuple[str, ...] = field(default=("orchestrator",))

    def seeds(self) -> list[bytes]:
        """Return the corpus, always in the same order."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).iterdir())]

    def try_out(self, data: bytes, folder: Path) -> None:
        """Run one input.

        Raises:
            BrokenPromiseError: it breaks a promise, or takes too long; anything that isn't allowed is one.
        """
        begun = time.process_time()
        try:
            self._run(data, folder)
        except Exception as err:
            raise BrokenPromiseError(f"{self.name}: {type(err).__name__}: {err}"[:2000]) from err
        took = time.process_time() - begun
        if took > self.seconds:
            raise BrokenPromiseError(f"{self.name}: it took {took:.1f} seconds of processor time")

    def _run(self, data: bytes, folder: Path) -> None:
        try:
            self.run(data, folder)
        except self.allowed as err:
            _require_readable(err)


def _require_readable(err: Exception) -> None:
    """An error is for people: short, and nothing in it obeyed by a terminal once it has gone through the filter."""
    said = str(err)
    assert said.strip(), f"{type(err).__name__} says nothing"
    assert len(said) < _ERROR_LENGTH, f"an error of {len(said)} characters"
    assert not find_unprintable(clean(said), lines=True)
    json.dumps(said)
