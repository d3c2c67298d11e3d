"""Opens a run's folders and finds what it starts from: its newest checkpoint, another run's, weights, or nothing.

A checkpoint of the run itself comes first, so that the command that started a run resumes it. It is refused if a
setting differs that would make the result silently wrong; other settings are changed from there on, and that is said.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from trainer.base.config import Settings
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError, CheckpointMismatchError, first_line
from trainer.base.recipe import Workload
from trainer.base.setting import flatten_settings, list_defaults
from trainer.base.start_from import StartFrom
from trainer.checkpoints.loading import RowSelector, all_rows, load_newest
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.store import CheckpointStore, find_differences
from trainer.checkpoints.tree import State
from trainer.group.distributed import ProcessGroup
from trainer.report.status import StatusFile
from trainer.start.carried import Target
from trainer.start.open import Beginning, find_beginning
from trainer.start.weights import InitialWeights
from trainer.step.assembly import is_sharded
from trainer.step.batch import BatchPlan

Say = Callable[[str], None]
_BEST = ("validate.best", "validate.best_is")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    """A run's folders, and what it starts from.

    `state` is a checkpoint's, None to start from the beginning, with `weights` if there are any. `is_carried`: it
    comes from another run, whose batch, processes and optimizer may be others. `report` are lines for the user,
    `origin` says what the run was started from.
    """

    store: CheckpointStore
    status_file: StatusFile
    fingerprint: dict[str, Any]
    state: State | None
    weights: InitialWeights | None = None
    is_carried: bool = False
    report: tuple[str, ...] = ()
    origin: str = ""


def open_run_folders(
    name: str,
    settings: Settings,
    workload: Workload,
    group: ProcessGroup,
    contract: RunContract,
    say: Say,
    *,
    plan: BatchPlan,
    start: StartFrom = StartFrom(),  # noqa: B008 - frozen
) -> OpenedRun:
    """Create a run's folders and load what it starts from; collective.

    Raises:
        BadRequestError: a folder, or what to start from, cannot be used; nothing was changed.
        CheckpointMismatchError: the checkpoints belong to another configuration.
        IncompleteCheckpointError: some shards are on other machines.
    """
    peers = _find_peers(settings, group, contract)
    fingerprint = _fingerprint(name, settings, workload)
    defaults = _list_defaults(settings, workload)
    store = CheckpointStore(
        contract.checkpoint_dir,
        keep=settings.checkpoint.keep,
        keep_best=settings.checkpoint.keep_best,
        fingerprint=_select_for_best(fingerprint, settings),
        defaults=defaults,
        peers=peers,
    )
    target = Target(
        fingerprint=fingerprint,
        model=workload.model,
        plan=plan,
        samples=len(workload.train_data),
        processes=group.size,
    )

    def begin() -> Beginning:
        return find_beginning(start, target, group, contract, select=_local_rows(settings, group))

    # Before a folder is made: what can't be used is refused with nothing changed.
    has_steps = any(group.all_gather(bool(store.list_steps())))
    beginning = None if has_steps else begin()
    status_file = StatusFile(contract.output_dir / "status.json")
    group.broadcast_from_main(lambda: _prepare(status_file.prepare))
    # A process that writes no checkpoints needs no folder.
    (group.call_on_every_rank if peers else group.broadcast_from_main)(lambda: _prepare(store.prepare))
    state = load_newest(store, group, say, select=_local_rows(settings, group))
    opened = OpenedRun(store=store, status_file=status_file, fingerprint=fingerprint, state=state)
    if state is None:
        return _begin(opened, beginning or begin())
    return _resume(opened, state, defaults, settings, start)


def _begin(opened: OpenedRun, beginning: Beginning) -> OpenedRun:
    carried, weights = beginning.carried, beginning.weights
    if carried:
        return replace(opened, state=carried.state, is_carried=True, report=carried.report, origin=carried.origin)
    if weights:
        return replace(opened, weights=weights, report=weights.report, origin=weights.origin)
    return opened


def _resume(
    opened: OpenedRun, state: State, defaults: dict[str, Any], settings: Settings, start: StartFrom
) -> OpenedRun:
    """Take up the run's own checkpoint: refuse or report what differs from it."""
    theirs = {**defaults, **state["fingerprint"]}
    different = find_differences(theirs, opened.fingerprint)
    announced = {*flatten_settings(settings, changes=("announced",)), *_BEST}
    _refuse([key for key in different if key not in announced], theirs, opened.fingerprint)
    report = [_render_change(key, theirs, opened.fingerprint, state["progress"]["step"]) for key in different]
    given = "--init" if start.init else "--from" if start.checkpoint else ""
    if given:
        report.insert(0, f"{given} is ignored: this run has a checkpoint, from which it goes on")
    return replace(
        opened, state=_adapt(state, different), report=tuple(report), origin=str(state.get("started_from", ""))
    )


def _adapt(state: State, different: list[str]) -> State:
    """Drop from a state what changed settings make useless."""
    if "optimizer.name" in different:
        state = {**state, "optimizer": None}
    if not set(_BEST).isdisjoint(different):
        state = {**state, "progress": {**state["progress"], "best": None, "best_epoch": 0}}
    return state


def _render_change(key: str, theirs: dict[str, Any], ours: dict[str, Any], step: int) -> str:
    line = f"changed since the checkpoint: {key} {theirs.get(key)} -> {ours[key]} (from step {step} on)"
    return f"{line}, with new moments" if key == "optimizer.name" else line


def _fingerprint(name: str, settings: Settings, workload: Workload) -> dict[str, Any]:
    """List what a checkpoint and a run must have in common to resume, and what is said if it differs."""
    flat = flatten_settings(settings, changes=("never", "announced"))
    best = {"validate.best": settings.validate.best or workload.best}
    best_is = {"validate.best_is": settings.validate.best_is or workload.best_is}
    digest = {"model's tensors": _digest(workload.model)}
    return {"recipe": name, **{key: _plain(value) for key, value in flat.items()}, **best, **best_is, **digest}


def _list_defaults(settings: Settings, workload: Workload) -> dict[str, Any]:
    """List the values of settings that are newer than a checkpoint."""
    best = {"validate.best": workload.best, "validate.best_is": workload.best_is}
    return {**{key: _plain(value) for key, value in list_defaults(type(settings)).items()}, **best}


def _select_for_best(fingerprint: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Select what best weights must have in common to be compared: announced changes don't matter, the metric does."""
    announced = flatten_settings(settings, changes=("announced",))
    return {key: value for key, value in fingerprint.items() if key in _BEST or key not in announced}


def _plain(value: Any) -> Any:
    """Return a setting's value as a checkpoint holds it: paths and others as text."""
    return value if isinstance(value, (bool, int, float, str, tuple, list, dict, type(None))) else str(value)


def _digest(model: nn.Module) -> str:
    shapes = "\n".join(f"{key} {tuple(value.shape)} {value.dtype}" for key, value in model.state_dict().items())
    return hashlib.sha256(shapes.encode()).hexdigest()[:16]


def _find_peers(settings: Settings, group: ProcessGroup, contract: RunContract) -> Peers | None:
    """Return the peers that write sharded checkpoints; None if the main process has the whole state."""
    if not is_sharded(settings.compute, group) or group.store is None:
        return None
    return Peers(group.store, rank=group.rank, size=group.size, is_local_main=contract.local_rank == 0)


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


def _refuse(different: list[str], theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    if not different:
        return
    details = ", ".join(f"{key} was {theirs.get(key)} and is {ours.get(key)}" for key in different)
    raise CheckpointMismatchError(
        "the checkpoints here belong to another configuration",
        why=details,
        fix="use the same settings to resume, or go on in a new folder: --from CHECKPOINT --output-dir NEW",
    )
