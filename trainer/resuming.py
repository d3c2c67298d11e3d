"""What a run goes on from: its folders, the newest checkpoint in them, and whether it is of this very run."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from trainer.assembly import is_divided
from trainer.checkpoints.loading import Want, all_rows, load_newest
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.store import CheckpointStore, find_differences
from trainer.checkpoints.tree import State
from trainer.config import Settings, flatten_settings, list_defaults
from trainer.contract import RunContract
from trainer.distributed import World
from trainer.errors import BadRequestError, CheckpointMismatchError, first_line
from trainer.status import StatusFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A run's folders. `state` is what it goes on from, None from the beginning."""

    store: CheckpointStore
    status_file: StatusFile
    fingerprint: dict[str, Any]
    state: State | None


def open_folders(
    name: str,
    settings: Settings,
    model: nn.Module,
    world: World,
    contract: RunContract,
    say: Callable[[str], None],
) -> Opened:
    """Make a run's folders usable and load its newest checkpoint; collective.

    Raises:
        BadRequestError: a folder cannot be used.
        CheckpointMismatchError: the checkpoints are of another configuration.
        IncompleteCheckpointError: parts of them are on other machines.
    """
    peers = _find_peers(settings, world, contract)
    fingerprint = _fingerprint(name, settings, model)
    defaults = list_defaults(type(settings))  # a setting that is newer than a checkpoint had its default's effect
    store = CheckpointStore(
        contract.checkpoint_dir,
        keep=settings.checkpoint.keep,
        keep_best=settings.checkpoint.keep_best,
        fingerprint=fingerprint,
        defaults=defaults,
        peers=peers,
    )
    status_file = StatusFile(contract.output_dir / "status.json")
    world.from_main(lambda: _prepare(status_file.prepare))
    # Where the others write nothing, they need no folder.
    (world.each if peers else world.from_main)(lambda: _prepare(store.prepare))
    state = load_newest(store, world, say, want=_own_rows(settings, world))
    if state is not None:
        _check_fingerprint({**defaults, **state["fingerprint"]}, fingerprint)
    return Opened(store=store, status_file=status_file, fingerprint=fingerprint, state=state)


def _fingerprint(name: str, settings: Settings, model: nn.Module) -> dict[str, Any]:
    """List what a checkpoint and a run must have in common for one to go on from the other."""
    shapes = "\n".join(f"{key} {tuple(value.shape)} {value.dtype}" for key, value in model.state_dict().items())
    digest = hashlib.sha256(shapes.encode()).hexdigest()[:16]
    return {"recipe": name, **flatten_settings(settings, only_fixed=True), "model's tensors": digest}


def _find_peers(settings: Settings, world: World, contract: RunContract) -> Peers | None:
    """Find those who write checkpoints together; None where the main process has all that is in one."""
    if not is_divided(settings.compute, world) or world.store is None:
        return None
    return Peers(world.store, rank=world.rank, size=world.size, leads_machine=contract.local_rank == 0)


def _own_rows(settings: Settings, world: World) -> Want:
    """Tell which rows of the model this process holds."""
    if not is_divided(settings.compute, world):
        return all_rows
    return lambda total: chunk_rows(total, world.rank, world.size)


def _prepare(prepare: Callable[[], None]) -> None:
    try:
        prepare()
    except OSError as err:
        raise BadRequestError(
            "the output or checkpoint folder cannot be used",
            why=first_line(err),
            fix="choose folders that can be written with --output-dir and --checkpoint-dir",
        ) from err


def _check_fingerprint(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    different = find_differences(theirs, ours)
    if not different:
        return
    details = ", ".join(f"{key} was {theirs.get(key)} and is {ours.get(key)}" for key in different)
    raise CheckpointMismatchError(
        "the checkpoints here are of another configuration",
        why=details,
        fix="use the same settings to go on, or start anew with another --output-dir and --checkpoint-dir",
    )
