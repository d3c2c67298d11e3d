"""Finds what a new run starts from; everything is checked before the run's folders are made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError, DamagedCheckpointError
from trainer.base.start_from import StartFrom
from trainer.checkpoints.header import read_header
from trainer.checkpoints.loading import RowSelector, load
from trainer.checkpoints.remap import read_content
from trainer.checkpoints.shards import is_whole
from trainer.checkpoints.store import SUFFIX
from trainer.group.distributed import ProcessGroup
from trainer.start.carried import Carried, Target, carry_over, is_ours
from trainer.start.foreign import adopt
from trainer.start.frozen import find_frozen_weights
from trainer.start.weights import InitialWeights, find_initial_weights

_STEP = re.compile(r"step-(\d{8,})(?:\.safetensors|\.pt)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What a new run starts from: weights, a state to go on from, neither, or a state and the weights that it lacks."""

    weights: InitialWeights | None = None
    carried: Carried | None = None


def find_beginning(
    start: StartFrom, target: Target, group: ProcessGroup, contract: RunContract, *, select: RowSelector
) -> Beginning:
    """Read and check what a new run starts from, with nothing changed; collective.

    Raises:
        BadRequestError: it can't be read, or doesn't fit the run.
        CheckpointMismatchError: the checkpoint's model has other tensors.
    """
    _check_flags(start, target)
    if start.checkpoint is None:
        return Beginning(weights=find_initial_weights(start, target, group, contract.hub))
    weights = find_frozen_weights(start, target, group, contract.hub)
    path = _find_checkpoint(start.checkpoint, group)
    if path.resolve().parent == contract.checkpoint_dir.resolve():
        raise BadRequestError(
            f"--from {start.checkpoint} is in this run's own checkpoint folder",
            why="the run that goes on is a new one, and would mix its checkpoints with the old ones",
            fix="choose another --output-dir (and --checkpoint-dir), or leave --from out to resume the run",
        )
    if any(group.all_gather(_looks_like_ours(path))):
        _refuse_epochs_done(start, path)
        return Beginning(weights=weights, carried=_carry_over(path, target, group, select))

    def read() -> Carried:
        content = read_content(path)
        _refuse_best(content, path)
        if is_ours(content):
            _refuse_epochs_done(start, path)
            return carry_over(content, path, target)
        return adopt(content, path, target, key=None if start.init else start.key, epochs_done=start.epochs_done)

    return Beginning(weights=weights, carried=group.broadcast_from_main(read))


def _check_flags(start: StartFrom, target: Target) -> None:
    has_init, has_checkpoint = start.init is not None, start.checkpoint is not None
    is_whole_model = target.model.state_dict().keys() <= set(target.names)
    if has_init and has_checkpoint and is_whole_model:
        raise BadRequestError(
            "--init and --from were both given",
            why="--init starts a new training with weights, --from goes on with a training",
            fix="give one of them",
        )
    for flag, is_given, belongs_to, is_there in (
        ("--loosely", not start.strict, "--init", has_init),
        ("--epochs-done", start.epochs_done is not None, "--from", has_checkpoint),
        ("--key", start.key is not None, "--init or --from", has_init or has_checkpoint),
    ):
        if is_given and not is_there:
            raise BadRequestError(
                f"{flag} was given without {belongs_to}",
                why=f"it says how {belongs_to} is read",
                fix=f"give {belongs_to} as well, or leave {flag} out",
            )
    if (start.epochs_done or 0) < 0:
        raise BadRequestError(
            f"--epochs-done {start.epochs_done} is less than 0", why="it counts epochs", fix="give 0 or more"
        )


def _carry_over(path: Path, target: Target, group: ProcessGroup, select: RowSelector) -> Carried:
    try:
        state = load(path, group, select=select)
    except DamagedCheckpointError as err:
        raise BadRequestError(err.what, why=err.why, fix="give another of the checkpoints") from err
    return group.call_on_every_rank(lambda: carry_over(state, path, target))


def _refuse_epochs_done(start: StartFrom, path: Path) -> None:
    if start.epochs_done is not None:
        raise BadRequestError(
            f"--epochs-done is not for {path.name}",
            why="it is a checkpoint of this trainer, which knows its epochs",
            fix="leave --epochs-done out; --init starts at epoch 1 with its weights",
        )


def _refuse_best(content: Any, path: Path) -> None:
    """Refuse best weights of ours, which are weights only, and whose epoch would be misread."""
    if isinstance(content, Mapping) and content.keys() >= {"rating", "fingerprint"}:
        raise BadRequestError(
            f"--from {path} has weights only",
            why="the best weights are saved without the optimizer's state and the position",
            fix=f"start a new training with them: --init {path}; or go on from a step-*{SUFFIX}",
        )


def _find_checkpoint(path: Path, group: ProcessGroup) -> Path:
    """Return a checkpoint, or the newest one in a folder of checkpoints or of a run's results."""
    names: list[str] = sorted({name for found in group.all_gather(_list_steps(path)) for name in found}, key=_step_of)
    return path / names[-1] if names else path


def _list_steps(path: Path) -> list[str]:
    if not path.is_dir() or is_whole(path):
        return []
    found = [item for folder in (path, path / "checkpoints") if folder.is_dir() for item in folder.iterdir()]
    return [str(item.relative_to(path)) for item in found if _STEP.fullmatch(item.name) and is_whole(item)]


def _step_of(name: str) -> tuple[int, str]:
    match = _STEP.fullmatch(Path(name).name)
    return (int(match[1]) if match else -1), name


def _looks_like_ours(path: Path) -> bool:
    """Whether a file's header, or a folder, is that of a whole checkpoint of ours; its data are not read."""
    if path.is_dir():
        return is_whole(path)
    if path.suffix != SUFFIX:
        return False
    try:
        plain: Any = read_header(path).plain
    except (OSError, ValueError):
        return False
    return is_ours(plain)
