"""Puts a run where it starts: at its checkpoint, at another run's, or at the beginning with or without weights."""

from typing import Any

from trainer.base.rng import restore_rng, seed_all
from trainer.checkpoints.tree import State
from trainer.run.progress import restore_progress
from trainer.run.resume import OpenedRun
from trainer.run.run import Run
from trainer.start.moments import UnusableMomentsError, arrange_moments, load_state


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
    if run.progress.epoch < run.settings.epochs and not opened.is_carried:
        run.console.say(f"resumed from step {run.progress.step} ({at})")


def _restore(run: Run, state: State, *, is_carried: bool) -> None:
    load_state(run.learner, {**state, "optimizer": _choose_moments(run, state, is_carried=is_carried)})
    run.progress = restore_progress(state["progress"])
    run.saved_position = run.progress.position
    if len(state["rng"]) == run.group.size:
        restore_rng(state["rng"][run.group.rank], run.group.device)
        if not is_carried and state.get("micro_batch") == run.settings.micro_batch:  # not if the user has changed it
            run.learner.micro_batch = min(run.learner.micro_batch, state["micro_batches"][run.group.rank])
        return
    if not is_carried:
        writers = f"{len(state['rng'])} processes" if state["rng"] else "one that ran out of memory"
        run.console.say(f"written by {writers}, now {run.group.size}: the same global batches follow")
    seed_all(seed=run.settings.seed, rank=run.group.rank, step=run.progress.step)


def _choose_moments(run: Run, state: State, *, is_carried: bool) -> Any:
    """Return the optimizer's state as this run's optimizer numbers it; None, and a line, if it can't be used."""
    saved, optimizer = state["optimizer"], run.learner.optimizer
    if saved is None:
        if is_carried:
            run.console.say("new: the optimizer's moments (the checkpoint has none)")
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
    """Whether the groups have the same sizes, and use momentum as the saved ones did."""
    theirs = [(len(group["params"]), bool(group.get("momentum"))) for group in saved["param_groups"]]
    return theirs == [(len(group["params"]), bool(group.get("momentum"))) for group in groups]
