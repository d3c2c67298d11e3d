"""Errors of the trainer: what happened, why, and how to fix it, one line each.

TrainerError                    exit 1
├── BadRequestError             exit 2  an unknown recipe or setting, a batch that cannot be trained
├── CheckpointMismatchError     exit 2  the checkpoints belong to another configuration
├── DamagedCheckpointError              one checkpoint does not load; an earlier one is used
│   └── IncompleteCheckpointError  exit 2  some of its shards are on no machine of this run
├── CheckpointWriteError        exit 1  a checkpoint could not be written
├── NonFiniteError              exit 1  the loss or the gradient became NaN or infinite
├── DeviceMemoryError           exit 1  the device or the machine has no memory left
│   └── GroupMemoryError        exit 1  the same within a collective: the process group has to restart
├── ExportError                 exit 1  the exported model's outputs differ from the trained model's
└── PublishError                exit 1  the results could not be published
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
        """Pickle with the keyword arguments, so that other ranks get the whole error: the default loses them."""
        return _rebuild, (type(self), self.what, self.why, self.fix)


class BadRequestError(TrainerError):
    """The request cannot be carried out; nothing was changed."""

    exit_code = 2


class CheckpointMismatchError(TrainerError):
    """The checkpoint folder belongs to a run with another configuration."""

    exit_code = 2


class DamagedCheckpointError(TrainerError):
    """One checkpoint does not load."""


class IncompleteCheckpointError(DamagedCheckpointError):
    """Some shards of a checkpoint are missing; nothing was changed."""

    exit_code = 2


class CheckpointWriteError(TrainerError):
    """A checkpoint could not be written."""


class NonFiniteError(TrainerError):
    """The loss or the gradient norm is NaN or infinite."""


class DeviceMemoryError(TrainerError):
    """The device ran out of memory in a step."""


class GroupMemoryError(DeviceMemoryError):
    """One process ran out of memory while the others wait in a collective: the group has to restart."""


class ExportError(TrainerError):
    """The exported model differs from the trained one."""


class PublishError(TrainerError):
    """The results could not be published; they are complete in the output folder."""


def visible(text: str) -> str:
    """Escape control and invisible characters: names in a checkpoint or a data set come from strangers."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else _escaped(letter) for letter in text)


def first_line(err: BaseException | str) -> str:
    """Return the first line of an error's message without colours, or the error's type if it has no message."""
    plain = _COLOURS.sub("", str(err)).strip()
    return clip((plain or type(err).__name__).splitlines()[0])


def clip(text: str) -> str:
    """Shorten text from a library or a stranger's file to what fits on a line of an error."""
    return text if len(text) <= _LINE else f"{text[:_LINE]}..."


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def _rebuild(kind: type[TrainerError], what: str, why: str, fix: str) -> TrainerError:
    return kind(what, why=why, fix=fix)
