"""The one decoder for what a machine says: whoever has taken one over says what he likes.

A machine may cost its laptop so many bytes for each kind of answer (the limits below; `adapters/remote` cuts it off
there), and what is decoded holds numbers that can be calculated with and printed, and no deeper nesting than code that
walks it can bear. Anything else is a NonsenseError: a finding of `status`, an ordinary error elsewhere.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeVar

import msgspec

from orchestrator.core.errors import NonsenseError

_Answer = TypeVar("_Answer")

ANSWER_BYTES = 1 << 20
"""Of what a command prints, if nothing else is said: a report holds at most four files of 64 KiB (agent/report.py),
which JSON's escapes make three times as long."""
LIST_BYTES = 1 << 27
"""Of a list of results: some 700,000 files of a usual path's length."""
LOG_BYTES = 1 << 26
"""Of the end of a log that is shown: nobody reads more in a terminal."""
LINE_BYTES = 1 << 23
"""Of one line of a stream: the agent's longest holds 1 MiB of the log (agent/follow.py), of which JSON makes six
times as much where it is bytes that are no text."""

LATEST = 16_725_225_600.0
"""The year 2500 in Unix seconds: no file system of Linux keeps later times for long (ext4 until 2446, XFS until 2486),
and a datetime bears any span that is added."""
DEPTH = 16
"""Of lists and objects in each other, in a user's status.json."""
_WHOLE = 1 << 63
_QUOTED = 80

Instant = Annotated[float, msgspec.Meta(ge=0, le=LATEST)]
FileTime = Annotated[float, msgspec.Meta(ge=-LATEST, le=LATEST)]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
ExitCode = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=1 << 32)]
Quantity = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
Name = Annotated[str, msgspec.Meta(max_length=255)]
Path = Annotated[str, msgspec.Meta(max_length=4096)]
Text = Annotated[str, msgspec.Meta(max_length=1 << 16)]


def decode(raw: bytes, kind: type[_Answer], *, what: str) -> _Answer:
    """Decode JSON that a machine has made.

    Args:
        raw: what it said.
        kind: what that should be; its fields have the bounded types above.
        what: names it, as in `its report`.

    Raises:
        NonsenseError: it is something else, whatever that is.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as err:
        raise nonsense(what, f"{clip(str(err))}; it begins {raw[:_QUOTED]!r}") from err


def nonsense(what: str, why: str) -> NonsenseError:
    """Make the error of an answer that can't be meant."""
    return NonsenseError(
        f"the machine talks nonsense: {what} can't be read",
        why=why,
        fix="look at the machine with `kedge ssh`, or end it with `kedge teardown --no-fetch`",
    )


def require_bounded(content: object) -> None:
    """Refuse what nobody can walk, calculate with or print, in content of any shape.

    Raises:
        ValueError: it is nested too deep, or holds a number beyond all measure.
    """
    level = [content]
    for _ in range(DEPTH):
        level = [item for each in level for item in _items(each)]
        if not level:
            return
    raise ValueError(f"nested more than {DEPTH} deep")


def split_lines(log: bytes) -> list[bytes]:
    """Split a log where its lines end, and nowhere else."""
    *lines, rest = log.split(b"\n")
    return [*lines, rest] if rest else lines


def clip(text: str, most: int = 300) -> str:
    """Cut a machine's words to what fits an error."""
    return text if len(text) <= most else f"{text[:most]}..."


def _items(each: object) -> list[Any]:
    if isinstance(each, dict):
        return list(each.values())
    if isinstance(each, list):
        return each
    if isinstance(each, int) and abs(each) > _WHOLE:
        raise ValueError("a whole number of more than 64 bits")
    if isinstance(each, float) and not math.isfinite(each):
        raise ValueError("a number that is infinite, or none")
    return []
