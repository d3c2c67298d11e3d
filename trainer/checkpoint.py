"""Checkpoints on disk: each one file, whole or absent; the newest that loads cleanly is the one that counts.

    step-00001234.pt    the whole training state after 1,234 steps; the last few are kept
    best.pt             the best weights by validation

Nothing is unpickled but plain containers and tensors (`weights_only=True`), always onto the CPU.
"""

import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from trainer.errors import CheckpointWriteError, DamagedCheckpointError, first_line
from trainer.files import remove_temporaries, write_atomically

FORMAT = 1
BEST_NAME = "best.pt"
State = dict[str, Any]
_STEP_NAME = re.compile(r"step-(\d{8,})\.pt")
# What torch.load raises on bytes that are no checkpoint, besides our own check of the checksums.
_LOAD_ERRORS = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    KeyError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)


class CheckpointStore:
    """One run's checkpoint folder. Only the main process uses it."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def prepare(self) -> None:
        """Create the folder, and clear away what a killed process left half-written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self._folder, "step-*.pt")
        remove_temporaries(self._folder, BEST_NAME)

    def save(self, state: State, *, step: int) -> Path:
        """Write one step's checkpoint durably, then prune to the newest ones.

        Raises:
            CheckpointWriteError: it could not be written; earlier ones are untouched.
        """
        path = self._folder / f"step-{step:08d}.pt"
        self._write(path, state)
        for old in self.list_steps()[self._keep :]:
            old.unlink(missing_ok=True)
        return path

    def save_best(self, state: State) -> None:
        """Replace the best weights durably.

        Raises:
            CheckpointWriteError: they could not be written; the earlier ones are untouched.
        """
        self._write(self._folder / BEST_NAME, state)

    def list_steps(self) -> list[Path]:
        """List the step checkpoints, newest first."""
        found = [(int(match[1]), path) for path in self._folder.iterdir() if (match := _STEP_NAME.fullmatch(path.name))]
        return [path for _, path in sorted(found, reverse=True)]

    def newest_name(self) -> str | None:
        """Name the newest step checkpoint, if there is one."""
        steps = self.list_steps()
        return steps[0].name if steps else None

    def load_newest(self, say: Callable[[str], None]) -> State | None:
        """Load the newest checkpoint that is sound; a damaged one is set aside as NAME.damaged, and said."""
        for path in self.list_steps():
            try:
                return load_checkpoint(path)
            except DamagedCheckpointError as err:
                path.replace(path.with_name(f"{path.name}.damaged"))
                say(f"{err.what} ({err.why}): set aside, going back to the one before it")
        return None

    def load_best(self, say: Callable[[str], None]) -> State | None:
        """Load the best weights; None, and said, where the file is missing or damaged."""
        try:
            return load_checkpoint(self._folder / BEST_NAME)
        except DamagedCheckpointError as err:
            say(f"{err.what} ({err.why})")
            return None

    def _write(self, path: Path, state: State) -> None:
        def write(stream: BinaryIO) -> None:
            torch.save({"format": FORMAT, **state}, stream)

        try:
            write_atomically(path, write)
        except (OSError, RuntimeError) as err:  # torch wraps what the disk said
            raise CheckpointWriteError(
                f"{path.name} could not be written",
                why=first_line(err),
                fix=f"make room in {path.parent}, or choose another folder with --checkpoint-dir",
            ) from err


def load_checkpoint(path: Path) -> State:
    """Read one checkpoint file onto the CPU, checksums verified, no code executed.

    Raises:
        DamagedCheckpointError: missing, cut short, altered, or not one of ours.
    """
    try:
        # torch.load itself doesn't compare the checksums that torch.save writes.
        with zipfile.ZipFile(path) as archive:
            altered = archive.testzip()
        if altered:
            raise zipfile.BadZipFile(f"{altered} fails its checksum")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except _LOAD_ERRORS as err:
        raise _damaged(path, first_line(err)) from err
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise _damaged(path, f"not a checkpoint of format {FORMAT}")
    return state


def _damaged(path: Path, why: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"{path.name} does not load", why=why, fix="an earlier checkpoint is used instead")
