"""A target: what is done with bytes from outside, and what must hold for all bytes."""

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
    """An input makes the code do what it must not do."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One surface.

    Attributes:
        run: takes an input and its own empty folder, and raises AssertionError if a promise is broken.
        allowed: the errors with which the code may refuse an input: those that a user sees.
        form: the format of inputs, if they have one.
        tokens: words with a meaning here, which mutations insert.
        examples: how many mutations `make test` tries.
        seconds: the most processor time for one input.
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
            BrokenPromiseError: it breaks a promise, takes too long, or raises an error that isn't allowed.
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
    """Require that an error is fit for people: short, and without escape sequences after the filter."""
    said = str(err)
    assert said.strip(), f"{type(err).__name__} says nothing"
    assert len(said) < _ERROR_LENGTH, f"an error of {len(said)} characters"
    assert not find_unprintable(clean(said), lines=True)
    json.dumps(said)
