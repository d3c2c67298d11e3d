"""Finds the line of a job file's key, for errors that are found after validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.adapters.jobfile.document import Document
from orchestrator.adapters.jobfile.problems import KeyPath, Problem, dotted, refusal
from orchestrator.core.errors import BadRequestError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMap:
    """A document and the chosen mode; a key in the mode is found before the same key of the job."""

    document: Document
    mode: str

    def refusal(self, key_path: KeyPath, what: str, *, why: str = "", fix: str = "") -> BadRequestError:
        """Return the error for a key, at its line in the mode if it is there, else in the job."""
        there = self._there(key_path)
        problem = Problem(line=self.document.line(there), what=f"`{dotted(there)}`: {what}", why=why, fix=fix)
        return refusal(self.document.path, [problem])

    def at(self, key_path: KeyPath, act: Callable[[], _T]) -> _T:
        """Call a function, and add the key and its line to its error.

        Raises:
            BadRequestError: the function raised it.
        """
        try:
            return act()
        except BadRequestError as err:
            raise self.refusal(key_path, err.what, why=err.why, fix=err.fix) from err

    def _there(self, key_path: KeyPath) -> KeyPath:
        in_mode = ("modes", self.mode, *key_path)
        return in_mode if self.mode and in_mode in self.document.lines else key_path
