"""What an attempt has to go on from: the earlier ones of its run, wherever they were, and their checkpoints."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from .files import read_json, write_json
from .layout import Layout
from .standing import Standing, furthest, list_checkpoints
from .wire import RunConfig

_NOTE = "attempt"
ANEW = "anew"


@dataclass(frozen=True)
class Attempt:
    """The last attempt of the run that began to work.

    Attributes:
        began: in Unix seconds; 0 where there was none.
        had: the furthest checkpoint of each series that it found.
    """

    began: float = 0.0
    had: tuple[Standing, ...] = ()


@dataclass(frozen=True)
class Resumption:
    """What the next attempt goes on from.

    Attributes:
        goes_on: there is something to go on from.
        checkpoint: the newest complete one; None where there is none, or where no earlier attempt has begun.
        had: the furthest of each series.
        is_first: no attempt has begun before.
    """

    goes_on: bool = False
    checkpoint: Standing | None = None
    had: tuple[Standing, ...] = ()
    is_first: bool = True

    def variables(self, layout: Layout) -> dict[str, str]:
        """Return the variables that tell the command of it; they are empty rather than missing."""
        path = str(layout.checkpoints / self.checkpoint.name) if self.checkpoint else ""
        return {"KEDGE_RESUME": "1" if self.goes_on else "", "KEDGE_CHECKPOINT": path}

    def command(self, config: RunConfig) -> str:
        """Return the script that is started."""
        return config.resume if self.goes_on and config.resume.strip() else config.command

    def remark(self, config: RunConfig) -> str:
        """Say what is started, and why; empty for the first attempt."""
        if self.is_first:
            return ""
        if not self.goes_on:
            return "there is no complete checkpoint to go on from: `run` is started again"
        what = f"checkpoint {self.checkpoint.label}" if self.checkpoint else "an earlier attempt"
        return f"there is {what} to go on from: `{'resume' if config.resume.strip() else 'run'}` is started"


def find_resumption(layout: Layout, config: RunConfig) -> Resumption:
    """Look for what the next attempt can go on from; the command isn't at work.

    A job that names its checkpoint folder goes on from a checkpoint. Of any other nobody knows where its state lies, so
    that an earlier attempt is enough.
    """
    if not read_attempt(layout).began:
        return Resumption()
    found = list_checkpoints(layout.checkpoints)
    return Resumption(
        goes_on=bool(found) or not config.checkpoints,
        checkpoint=found[0] if found else None,
        had=tuple(furthest(found)),
        is_first=False,
    )


def note_attempt(layout: Layout, resumption: Resumption) -> None:
    """Write down that an attempt begins to work, and with what."""
    layout.note(ANEW).unlink(missing_ok=True)
    # Of a command whose attempts nobody knows of after a power cut, no checkpoint would be kept apart.
    write_json(layout.note(_NOTE), asdict(Attempt(time.time(), resumption.had)), durable=True)


def read_attempt(layout: Layout) -> Attempt:
    """Read what was written down of the last attempt."""
    return parse_attempt(read_json(layout.note(_NOTE)))


def attempt_as_data(layout: Layout) -> dict[str, Any]:
    """Return what the next machine of the run has to know of the attempts on this one."""
    return read_json(layout.note(_NOTE))


def take_attempt(layout: Layout, raw: object) -> None:
    """Take over what another machine has written down, unless an attempt has begun here."""
    attempt = parse_attempt(raw if isinstance(raw, dict) else {})
    if attempt.began and not read_attempt(layout).began:
        write_json(layout.note(_NOTE), asdict(attempt), durable=True)


def parse_attempt(raw: dict[str, Any]) -> Attempt:
    """Parse what one says of itself; what can't be is as good as nothing."""
    began, had = raw.get("began"), raw.get("had")
    if not isinstance(began, int | float) or not 0 < began < 1 << 40:
        return Attempt()
    rows = had if isinstance(had, list) else []
    return Attempt(float(began), tuple(filter(None, (_parse_standing(row) for row in rows[:50]))))


def _parse_standing(row: Any) -> Standing | None:
    match row:
        case {"name": str(name), "bytes": int(size), "written": int() | float() as written, "kind": str(kind)}:
            step, epoch = (each if isinstance(each := row.get(key), int) else None for key in ("step", "epoch"))
            return Standing(name[:255], size, written, step, kind, epoch)
        case _:
            return None
