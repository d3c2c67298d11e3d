"""Decodes what a machine sends, within bounds: whoever has taken a machine over can send anything.

Each kind of answer has a limit in bytes (below; `adapters/ssh` cuts off the rest). Decoded numbers can be
calculated with and printed, and nesting is limited to what recursive code can handle. Anything else is a NonsenseError:
a finding in `status`, an ordinary error elsewhere.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeVar

import msgspec

from orchestrator.core.errors import NonsenseError
from orchestrator.core.values.structs import decode_json

_Answer = TypeVar("_Answer")

ANSWER_BYTES = 1 << 20
"""The limit of a command's output, unless another one applies: a report holds at most four files of 64 KiB
(agent/watch/report.py), which JSON's escapes make up to three times as long."""
LIST_BYTES = 1 << 27
"""The limit of a list of results: about 700,000 files with paths of usual length."""
LOG_BYTES = 1 << 26
"""The limit of the shown end of a log: nobody reads more in a terminal."""
LINE_BYTES = 1 << 23
"""The limit of one line of a stream: the agent's longest line holds 1 MiB of the log (agent/watch/follow.py), which
becomes six times as long in JSON if its bytes aren't text."""

LATEST = 16_725_225_600.0
"""The year 2500 in Unix seconds: the usual file systems of Linux can't store later times (ext4: until 2446, XFS: until
2486), and adding a duration to it doesn't overflow a datetime."""
DEADLINE_KEY = {"deadline_at": "deadline"}
"""Maps `deadline_at` to its name on the wire, which agents of every version use."""
DEPTH = 16
"""How deep lists and objects in a user's status.json may be nested."""
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
TaskName = Annotated[str, msgspec.Meta(pattern=r"\A([a-z][a-z0-9-]{0,30})?\Z")]
"""As in job files: names are printed as labels of log lines, and in commands that the user may copy."""


def decode(raw: bytes, kind: type[_Answer], *, what: str) -> _Answer:
    """Decode JSON that a machine has sent.

    Args:
        raw: the bytes that it sent.
        kind: the expected type; its fields have the bounded types above.
        what: names the content in errors, as in `its report`.

    Raises:
        NonsenseError: it isn't valid content of that type.
    """
    try:
        return decode_json(raw, kind)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as err:
        raise nonsense(what, f"{clip(str(err))}; it begins {raw[:_QUOTED]!r}") from err


def nonsense(what: str, why: str) -> NonsenseError:
    """Make the error for an invalid answer."""
    return NonsenseError(
        f"the machine sent an invalid answer: {what} can't be read",
        why=why,
        fix="look at the machine with `kedge ssh`, or end it with `kedge teardown --no-fetch`",
    )


def require_bounded(content: object) -> None:
    """Refuse content that can't be walked, calculated with or printed.

    Raises:
        ValueError: it is nested too deep, or holds a number that is too large or not finite.
    """
    level = [content]
    for _ in range(DEPTH):
        level = [item for each in level for item in _items(each)]
        if not level:
            return
    raise ValueError(f"nested more than {DEPTH} deep")


def split_lines(log: bytes) -> list[bytes]:
    """Split a log at line feeds only."""
    *lines, rest = log.split(b"\n")
    return [*lines, rest] if rest else lines


def clip(text: str, most: int = 300) -> str:
    """Cut a machine's text to the length that fits an error."""
    return text if len(text) <= most else f"{text[:most]}..."


def _items(each: object) -> list[Any]:
    if isinstance(each, dict):
        return list(each.values())
    if isinstance(each, list):
        return each
    if isinstance(each, int) and abs(each) > _WHOLE:
        raise ValueError("a whole number of more than 64 bits")
    if isinstance(each, float) and not math.isfinite(each):
        raise ValueError("a number that is infinite or NaN")
    return []
