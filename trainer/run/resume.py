"""Opens a run's folders and loads the checkpoint to resume from, after checking that its configuration matches."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from trainer.base.config import Settings
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError, CheckpointMismatchError, first_line
from trainer.base.setting import flatten_settings, list_defaults
from trainer.checkpoints.loading import RowSelector, all_rows, load_newest
from trainer.checkpoints.nodes import number_nodes
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.replicas import ReplicatingPeers
from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.store import CheckpointStore, find_differences
from trainer.checkpoints.tree import State
from trainer.group.distributed import ProcessGroup
from trainer.report.status import StatusFile
from trainer.step.assembly import is_sharded


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    """A run's folders. `state` is the checkpoint to resume from, None to start from the beginning."""

    store: CheckpointStore
    status_file: StatusFile
    fingerprint: dict[str, Any]
    state: State | None


def open_run_folders(
    name: str,
    settings: Settings,
    model: nn.Module,
    group: ProcessGroup,
    contract: RunContract,
    say: Callable[[str], None],
) -> OpenedRun:
    """Create a run's folders and load its newest checkpoint; collective.

    Raises:
        BadRequestError: a folder cannot be used.
        CheckpointMismatchError: the checkpoints belong to another configuration.
        IncompleteCheckpointError: some shards are on other machines.
    """
    peers = _find_peers(settings, group, contract)
    fingerprint = _fingerprint(name, settings, model)
    defaults = list_defaults(type(settings))  # for settings that are newer than the checkpoint
    store = CheckpointStore(
        contract.checkpoint_dir,
        keep=settings.checkpoint.keep,
        keep_best=settings.checkpoint.keep_best,
        fingerprint=fingerprint,
        defaults=defaults,
        peers=peers,
    )
    status_file = StatusFile(contract.output_dir / "status.json")
    group.broadcast_from_main(lambda: _prepare(status_file.prepare))
    # A process that writes no checkpoints needs no folder.
    (group.call_on_every_rank if peers else group.broadcast_from_main)(lambda: _prepare(store.prepare))
    state = load_newest(store, group, say, select=_local_rows(settings, group))
    if state is not None:
        _check_fingerprint({**defaults, **state["fingerprint"]}, fingerprint)
    return OpenedRun(store=store, status_file=status_file, fingerprint=fingerprint, state=state)


def _fingerprint(name: str, settings: Settings, model: nn.Module) -> dict[str, Any]:
    """List what a checkpoint and a run must have in common to resume."""
    shapes = "\n".join(f"{key} {tuple(value.shape)} {value.dtype}" for key, value in model.state_dict().items())
    digest = hashlib.sha256(shapes.encode()).hexdigest()[:16]
    return {"recipe": name, **flatten_settings(settings, changes=("never", "announced")), "model's tensors": digest}


def _find_peers(settings: Settings, group: ProcessGroup, contract: RunContract) -> Peers | None:
    """Return the peers that write sharded checkpoints; None if the main process has the whole state."""
    if not is_sharded(settings.compute, group) or group.store is None:
        return None
    nodes = number_nodes(group.all_gather(contract.local_rank))
    if replicas := _count_replicas(settings, contract, nodes=len(set(nodes))):
        return ReplicatingPeers(group.store, rank=group.rank, nodes=nodes, replicas=replicas)
    return Peers(group.store, rank=group.rank, size=group.size, is_local_main=contract.local_rank == 0)


def _count_replicas(settings: Settings, contract: RunContract, *, nodes: int) -> int:
    """Return how many other nodes keep a copy of each shard: by default one on spot machines, which may be lost."""
    asked = settings.checkpoint.replicas
    if asked is None:
        asked = int(contract.expected_life_hours is not None)
    return min(asked, nodes - 1)


def _local_rows(settings: Settings, group: ProcessGroup) -> RowSelector:
    """Select the rows of the model that this process holds."""
    if not is_sharded(settings.compute, group):
        return all_rows
    return lambda total: chunk_rows(total, group.rank, group.size)


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
        "the checkpoints here belong to another configuration",
        why=details,
        fix="use the same settings to resume, or start a new run with another --output-dir and --checkpoint-dir",
    )
