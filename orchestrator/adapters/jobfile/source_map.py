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
    """A document and the chosen mode.

    A key is found in the mode or in the job, where more of it is written; if equally much is, in the mode. A name in a
    list is found at the list.
    """

    document: Document
    mode: str

    def item(self, key_path: KeyPath, index: int) -> KeyPath:
        """Return the key of an item of a list; of a single value, which isn't written as a list, the list's own."""
        there = (*self._there(key_path), index)
        return there if there in self.document.lines else key_path

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
        top: KeyPath = ("modes", self.mode)
        in_mode = (*top, *key_path)
        is_in_mode = self._written(in_mode) - len(top) >= max(1, self._written(key_path))
        return in_mode if self.mode and is_in_mode else key_path

    def _written(self, key_path: KeyPath) -> int:
        """Count the keys of a path, from the first one, that are in the document."""
        return next((count for count in range(len(key_path), 0, -1) if key_path[:count] in self.document.lines), 0)
