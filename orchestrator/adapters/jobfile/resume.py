"""What a job runs where there is something to go on from: another command, or more arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.adapters.jobfile.models import ModePart
from orchestrator.adapters.jobfile.problems import quoted
from orchestrator.adapters.jobfile.written import Written

_OPEN_END = re.compile(r"(?:^|\s)#|[\\\\&;|)}]\s*$|(?:^|\s)(?:fi|done|esac)\s*$")
"""The end of a line to which no arguments can be added."""
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_GOES_ON = re.compile(r"\\\n|(?<=\|)\s*\n")


def lay_resume(written: Written, layers: Sequence[ModePart], run: str) -> tuple[str, str]:
    """Return a job's other command and its additional arguments, one of which is empty at least.

    A layer with a `run` of its own forgets the other command of those below it, which belongs to theirs.

    Raises:
        BadRequestError: there is no `run`, both are said, or arguments can't be put at the end of `run`.
    """
    command, args = "", ""
    for layer in layers:
        if layer.run is not None:
            command = ""
        if layer.resume is not None:
            command, args = layer.resume.command or "", " ".join((layer.resume.args or "").split("\n")).strip()
    if (command or args) and not run.strip():
        raise written.refusal(("resume",), "there is no `run` that this could go on with", fix="write a `run`")
    if command and args:
        raise written.refusal(
            ("resume",), "this says both a command and arguments", fix="put the arguments into the command"
        )
    last = (_GOES_ON.sub(" ", run.strip()).splitlines() or [""])[-1]
    if args and (_OPEN_END.search(last) or _ends_elsewhere(run, last)):
        raise written.refusal(
            ("resume",),
            "arguments can't be put at the end of this `run`",
            why=f"its last line is {quoted(last)}",
            fix="write the whole command instead: `resume: python train.py ...`",
        )
    return command, args


def _ends_elsewhere(run: str, last: str) -> bool:
    """Tell whether what ends a script isn't its own program: what a pipe or `||` leads to, or a here-document."""
    return "|" in _QUOTED.sub("", last) or bool(re.search(rf"<<-?\s*['\"]?{re.escape(last.strip())}\b", run))
