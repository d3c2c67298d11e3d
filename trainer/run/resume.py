"""Opens a run's folders and puts the run where it starts: its newest checkpoint, another run's, weights, or nothing.

A checkpoint of the run itself comes first, so that the command that started a run resumes it.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trainer.base.config import Settings
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError, first_line
from trainer.base.recipe import BuiltWorkload
from trainer.base.rng import restore_rng, seed_all
from trainer.base.start_from import StartFrom
from trainer.checkpoints.loading import RowSelector, all_rows, load_newest
from trainer.checkpoints.nodes import number_nodes
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.replicas import ReplicatingPeers
from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.store import CheckpointStore
from trainer.checkpoints.tree import State
from trainer.checkpoints.weights import list_saved_names
from trainer.group.distributed import ProcessGroup
from trainer.report.status import StatusFile
from trainer.run.progress import restore_progress
from trainer.run.run import Run
from trainer.start.carried import Target
from trainer.start.fingerprint import make_fingerprint
from trainer.start.frozen import KEY, check_frozen, digest_frozen, find_frozen_weights
from trainer.start.moments import UnusableMomentsError, arrange_moments
from trainer.start.open import Beginning, find_beginning
from trainer.start.weights import InitialWeights
from trainer.step.assembly import is_sharded
from trainer.step.batch import BatchPlan

Say = Callable[[str], None]


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
    workload: BuiltWorkload,
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
    fingerprint = make_fingerprint(name, settings, workload)
    store = CheckpointStore(
        contract.checkpoint_dir,
        keep=settings.checkpoint.keep,
        keep_best=settings.checkpoint.keep_best,
        fingerprint=fingerprint.of_best(),
        defaults=fingerprint.defaults,
        peers=peers,
    )
    target = Target(
        fingerprint=fingerprint.values,
        model=workload.model,
        names=tuple(list_saved_names(workload.model, trainable_only=workload.trainable_only)),
        plan=plan,
        samples=len(workload.train_data),
        processes=group.size,
    )

    frozen = digest_frozen(target, None, group)

    def begin() -> Beginning:
        found = find_beginning(start, target, group, contract, select=_local_rows(settings, group))
        if found.carried:
            digest = digest_frozen(target, found.weights, group) if found.weights else frozen
            check_frozen(found.carried.state.get("fingerprint", {}), digest)
        return found

    # Before a folder is made: what can't be used is refused with nothing changed.
    has_steps = any(group.all_gather(bool(store.list_steps())))
    beginning = None if has_steps else begin()
    status_file = StatusFile(contract.output_dir / "status.json")
    group.broadcast_from_main(lambda: _prepare(status_file.prepare))
    # A process that writes no checkpoints needs no folder.
    (group.call_on_every_rank if peers else group.broadcast_from_main)(lambda: _prepare(store.prepare))
    state = load_newest(store, group, say, select=_local_rows(settings, group))
    opened = OpenedRun(store=store, status_file=status_file, fingerprint=fingerprint.values, state=None)
    if state is None:
        opened = _begin(opened, beginning or begin())
        return _note_frozen(opened, digest_frozen(target, opened.weights, group) if opened.weights else frozen)
    recorded = state["fingerprint"]
    state, changes = fingerprint.take_up(state)
    weights, report = None, _list_ignored(start)
    is_mended = start.init and recorded.get(KEY, frozen) != frozen
    if is_mended and (found := find_frozen_weights(start, target, group, contract.hub)):
        weights, report = found, list(found.report)
        frozen = digest_frozen(target, weights, group)
    check_frozen(recorded, frozen)
    origin = str(state.get("started_from", ""))
    opened = replace(opened, state=state, weights=weights, report=(*report, *changes), origin=origin)
    return _note_frozen(opened, frozen)


def _note_frozen(opened: OpenedRun, frozen: str) -> OpenedRun:
    """Note in the fingerprint which frozen weights the run has, if its checkpoints leave them out."""
    return replace(opened, fingerprint={**opened.fingerprint, KEY: frozen}) if frozen else opened


def _begin(opened: OpenedRun, beginning: Beginning) -> OpenedRun:
    carried, weights = beginning.carried, beginning.weights
    if carried:
        report = (*(weights.report if weights else ()), *carried.report)
        opened = replace(opened, state=carried.state, weights=weights, is_carried=True)
        return replace(opened, report=report, origin=carried.origin)
    if weights:
        return replace(opened, weights=weights, report=weights.report, origin=weights.origin)
    return opened


def _list_ignored(start: StartFrom) -> list[str]:
    given = "--init" if start.init else "--from" if start.checkpoint else ""
    return [f"{given} is ignored: this run has a checkpoint, from which it goes on"] if given else []


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


def start_run(run: Run, opened: OpenedRun) -> None:
    """Load what the run starts from, and say what was loaded; collective.

    Raises:
        CheckpointMismatchError: the weights don't fit this model.
    """
    seed_all(seed=run.settings.seed, rank=run.group.rank, step=0)
    for line in opened.report:
        run.console.say(line)
    if opened.weights:
        opened.weights.load_into(run.learner, run.group)
    if opened.state is None:
        return
    _restore(run, opened.state, is_carried=opened.is_carried)
    at = f"epoch {run.progress.epoch + 1}, {run.progress.step_in_epoch} steps in"
    if not run.spec.triggers.is_over(run.progress) and not opened.is_carried:
        run.console.say(f"resumed from step {run.progress.step} ({at})")


def _restore(run: Run, state: State, *, is_carried: bool) -> None:
    run.learner.load({**state, "optimizer": _choose_moments(run, state, is_carried=is_carried)})
    run.progress = restore_progress(state["progress"])
    run.checkpoints.saved_position = run.progress.position
    _restore_hooks(run, state, is_carried=is_carried)
    if not is_carried:
        _restore_stream(run, state.get("streams", []))
    if len(state["rng"]) == run.group.size:
        restore_rng(state["rng"][run.group.rank], run.group.device)
        if not is_carried and state.get("micro_batch") == run.settings.micro_batch:  # not if the user has changed it
            run.learner.micro_batch = min(run.learner.micro_batch, state["micro_batches"][run.group.rank])
        return
    if not is_carried:
        writers = f"{len(state['rng'])} processes" if state["rng"] else "one that ran out of memory"
        run.console.say(f"written by {writers}, now {run.group.size}: the same global batches follow")
    seed_all(seed=run.settings.seed, rank=run.group.rank, step=run.progress.step)


def _restore_hooks(run: Run, state: State, *, is_carried: bool) -> None:
    """Give the recipe's hooks what they wanted to remember, unless the checkpoint is from before they did."""
    load_state = run.workload.hooks.load_state
    if load_state is None or "hooks" not in state:
        return
    load_state(copy.deepcopy(state["hooks"]))  # the checkpoint's own tensors may be in a file that is mapped
    if is_carried:
        run.console.say("kept: the hooks' state")


def _restore_stream(run: Run, streams: list[State]) -> None:
    """Go to this process's position in a stream, or to any process's if their number has changed."""
    if streams:
        note = run.train_loader.load_state(streams[run.group.rank if len(streams) == run.group.size else 0])
        if note:
            run.console.say(note)


def _choose_moments(run: Run, state: State, *, is_carried: bool) -> Any:
    """Return the optimizer's state as this run's optimizer numbers it; None, and a line, if it can't be used."""
    saved, optimizer = state["optimizer"], run.learner.optimizer
    if saved is None:
        if is_carried:
            run.console.say("new: the optimizer's moments (the checkpoint has none for this optimizer)")
        return None
    if not is_carried and _has_same_groups(saved, optimizer.param_groups):
        return saved
    try:
        moments = arrange_moments(
            saved,
            optimizer,
            run.model,
            order=state.get("order", list(state["model"])),
            is_ours="order" not in state,
        )
    except UnusableMomentsError as err:
        run.console.say(f"new: the optimizer's moments ({err})")
        return None
    if is_carried:
        run.console.say(f"kept: the optimizer's moments of {len(moments['state'])} parameters")
    return moments


def _has_same_groups(saved: State, groups: list[dict[str, Any]]) -> bool:
    """Whether the groups have the same parameters, by name or else by number, and momentum as the saved ones had."""
    pairs = zip(saved["param_groups"], groups, strict=False)
    return len(saved["param_groups"]) == len(groups) and all(
        len(old["params"]) == len(new["params"])
        and old.get("param_names", new["param_names"]) == new["param_names"]
        and bool(old.get("momentum")) == bool(new.get("momentum"))
        for old, new in pairs
    )
