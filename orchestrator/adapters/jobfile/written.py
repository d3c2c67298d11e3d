"""Where the things of a job file are written, for refusals that come after its shape was found good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.adapters.jobfile.document import Document
from orchestrator.adapters.jobfile.problems import KeyPath, Problem, dotted, refusal
from orchestrator.core.errors import BadRequestError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A document read with one of its modes, whose lines come before the job's own."""

    document: Document
    mode: str

    def refusal(self, key_path: KeyPath, what: str, *, why: str = "", fix: str = "") -> BadRequestError:
        """Make the error of one key; the mode's where the mode has it."""
        there = self._there(key_path)
        problem = Problem(line=self.document.line(there), what=f"`{dotted(there)}`: {what}", why=why, fix=fix)
        return refusal(self.document.path, [problem])

    def at(self, key_path: KeyPath, act: Callable[[], _T]) -> _T:
        """Do something on account of a key.

        Raises:
            BadRequestError: what it raised, with the key and its line.
        """
        try:
            return act()
        except BadRequestError as err:
            raise self.refusal(key_path, err.what, why=err.why, fix=err.fix) from err

    def _there(self, key_path: KeyPath) -> KeyPath:
        in_mode = ("modes", self.mode, *key_path)
        return in_mode if self.mode and in_mode in self.document.lines else key_path
