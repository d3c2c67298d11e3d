"""The command of a job file that checks its data on this computer, before anything is rented."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_PYTHON = re.compile(r"python[0-9.]*")
_OURS = "kedge_trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheck:
    """A check that `launch` runs after the user's yes.

    Attributes:
        command: its argv, as the job file says.
        runs: the argv that is executed.
        folder: where it runs: the job file's folder.
        bundled: kedge's own check, which only reads; it is run without a question, too.
    """

    command: tuple[str, ...]
    runs: tuple[str, ...]
    folder: str
    bundled: bool

    @property
    def shown(self) -> str:
        """The command in one line, quoted as a shell would need it."""
        return shlex.join(self.command)


def bundled_arguments(command: Sequence[str], *, has_own_trainer: bool) -> tuple[str, ...] | None:
    """Return what follows the module's name in `python -m trainer check ...`; None if the command is another one.

    Args:
        command: the argv.
        has_own_trainer: the job's code has a `trainer`, so that this name doesn't mean kedge's.
    """
    python, *words = command
    if not _PYTHON.fullmatch(python) or words[:1] != ["-m"] or words[2:3] != ["check"]:
        return None
    return tuple(words[2:]) if words[1] == _OURS or (words[1] == "trainer" and not has_own_trainer) else None
