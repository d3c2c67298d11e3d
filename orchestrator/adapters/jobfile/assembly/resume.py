"""Reads what a job runs when it resumes from a checkpoint: another command, or more arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.adapters.jobfile.models import ModePart
from orchestrator.adapters.jobfile.problems import KeyPath, quoted
from orchestrator.adapters.jobfile.source_map import SourceMap
from orchestrator.adapters.jobfile.task_parts import TaskPart

_OPEN_END = re.compile(r"(?:^|\s)#|[\\\\&;|)}]\s*$|(?:^|\s)(?:fi|done|esac)\s*$")
"""Matches the end of a line to which no arguments can be appended."""
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_GOES_ON = re.compile(r"\\\n|(?<=\|)\s*\n")


def read_resume(
    source_map: SourceMap, layers: Sequence[ModePart | TaskPart], run: str, around: KeyPath = ()
) -> tuple[str, str]:
    """Return a task's command for resuming and its additional arguments; at least one of the two is empty.

    A layer with its own `run` drops the resume command of the layers below, which belongs to their `run`. `around` are
    the keys above `resume`.

    Raises:
        BadRequestError: there is no `run`, both are given, or arguments can't be appended to `run`.
    """
    key = (*around, "resume")
    command, args = "", ""
    for layer in layers:
        if layer.run is not None:
            command = ""
        if layer.resume is not None:
            command, args = layer.resume.command or "", " ".join((layer.resume.args or "").split("\n")).strip()
    if (command or args) and not run.strip():
        raise source_map.refusal(key, "there is no `run` that could resume", fix="write a `run`")
    if command and args:
        raise source_map.refusal(key, "this has both a command and arguments", fix="add the arguments to the command")
    last = (_GOES_ON.sub(" ", run.strip()).splitlines() or [""])[-1]
    if args and (_OPEN_END.search(last) or _ends_elsewhere(run, last)):
        raise source_map.refusal(
            key,
            "arguments can't be appended to this `run`",
            why=f"its last line is {quoted(last)}",
            fix="write the whole command instead: `resume: python train.py ...`",
        )
    return command, args


def _ends_elsewhere(run: str, last: str) -> bool:
    """Tell whether a script's last line ends with something else than its program: a pipe, `||` or a here-document."""
    return "|" in _QUOTED.sub("", last) or bool(re.search(rf"<<-?\s*['\"]?{re.escape(last.strip())}\b", run))
