"""Errors of the trainer: what happened, why, and how to fix it, one line each.

TrainerError                    exit 1
├── BadRequestError             exit 2  an unknown recipe or setting, a batch that cannot be trained
├── CheckpointMismatchError     exit 2  the checkpoints belong to another configuration
├── DamagedCheckpointError              one checkpoint does not load; the one before it is used
│   └── IncompleteCheckpointError  exit 2  shards of it are on machines that aren't here
├── CheckpointWriteError        exit 1  a checkpoint could not be made durable
├── NonFiniteError              exit 1  the loss or the gradient became NaN or infinite
├── DeviceMemoryError           exit 1  the device or the machine has no memory left
│   └── GroupMemoryError        exit 1  while the other processes wait in a collective: the group starts again
├── ExportError                 exit 1  the exported model computes something else than the trained one
└── PublishError                exit 1  the results could not be handed to where they were to go
"""

import re
from typing import Any

_LINE = 500
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class TrainerError(Exception):
    """Root of everything that the trainer raises on purpose."""

    exit_code = 1

    def __init__(self, what: str, *, why: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return visible(f"{self.what}\n  why: {self.why}\n  fix: {self.fix}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to the other ranks whole: the default would lose the keyword arguments."""
        return _rebuild, (type(self), self.what, self.why, self.fix)


class BadRequestError(TrainerError):
    """What was asked for cannot be done; nothing was touched."""

    exit_code = 2


class CheckpointMismatchError(TrainerError):
    """The checkpoint folder holds another configuration's run."""

    exit_code = 2


class DamagedCheckpointError(TrainerError):
    """One checkpoint does not load."""


class IncompleteCheckpointError(DamagedCheckpointError):
    """Some shards of a checkpoint are not here; nothing was touched."""

    exit_code = 2


class CheckpointWriteError(TrainerError):
    """A checkpoint could not be written."""


class NonFiniteError(TrainerError):
    """The loss or the gradient norm is NaN or infinite."""


class DeviceMemoryError(TrainerError):
    """There is no memory left for the step."""


class GroupMemoryError(DeviceMemoryError):
    """Memory ran out in one process while the others wait in a collective: the group has to start again."""


class ExportError(TrainerError):
    """The exported model differs from the trained one."""


class PublishError(TrainerError):
    """The results could not be published; they are complete where they are."""


def visible(text: str) -> str:
    """Show as escapes what a terminal would obey, or not show: names in a checkpoint or a data set may be anybody's."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else _escaped(letter) for letter in text)


def first_line(err: BaseException) -> str:
    """Cut an error's message to its first line without colours; its type where there is none."""
    plain = _COLOURS.sub("", str(err)).strip()
    return clip((plain or type(err).__name__).splitlines()[0])


def clip(text: str) -> str:
    """Cut what a library, or a stranger's file, says to what fits a line of an error."""
    return text if len(text) <= _LINE else f"{text[:_LINE]}..."


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def _rebuild(kind: type[TrainerError], what: str, why: str, fix: str) -> TrainerError:
    return kind(what, why=why, fix=fix)
