"""Runs a recipe: assembles the run, resumes it, trains, and records how it ended."""

from contextlib import ExitStack, closing
from typing import Any, Literal

import torch

from trainer.base.config import Settings
from trainer.base.contract import RunContract
from trainer.base.memory import RESTART_FILE
from trainer.base.recipe import Recipe, Workload
from trainer.base.rng import RandomStreams, restore_rng, seed_all
from trainer.base.setting import flatten_settings
from trainer.base.signals import StopFlag
from trainer.base.sources import SampleSource, StreamSource
from trainer.checkpoints.saver import Saver
from trainer.checkpoints.tree import State
from trainer.data.loader import BatchLoader
from trainer.group.distributed import ProcessGroup, process_group
from trainer.report.console import Console, render_banner
from trainer.report.profile import ProfileRequest, StepProfiler
from trainer.report.rows import make_meter
from trainer.report.status import MetricsLog
from trainer.report.trackers import open_trackers
from trainer.run.control import Control
from trainer.run.ending import describe_best, explain, finish, record_failure, record_stop
from trainer.run.history import collect_history, drop_former_files
from trainer.run.loop import train
from trainer.run.outputs import check_outputs, select_weights
from trainer.run.progress import Progress, restore_progress
from trainer.run.resume import open_run_folders
from trainer.run.run import Checkpoints, Report, Run, RunSpec, StepObserver
from trainer.run.stall import Stall, StallWatchdog
from trainer.step.assembly import check_settings, make_learner
from trainer.step.batch import BatchPlan, find_batch_concern, plan_batch
from trainer.step.schedule import find_schedule_concern, scale_learning_rate

Outcome = Literal["succeeded", "stopped"]


def run_recipe(
    name: str, recipe: Recipe[Any], contract: RunContract, stop: StopFlag, *, profile: ProfileRequest | None = None
) -> Outcome:
    """Train a recipe from its newest intact checkpoint, or from the beginning, to its end or to a stop.

    Raises:
        BadRequestError: the batch, the devices or the folders can't be used; nothing was changed.
        CheckpointMismatchError: the checkpoint folder belongs to another configuration.
        TrainerError: training failed; status.json has "failed" and the reason.
    """
    console = Console(enabled=contract.rank == 0)
    with process_group(contract) as group:
        run = _assemble(name, recipe, contract, group, stop, console, profile)
        if _is_complete(run, is_local_main=contract.local_rank == 0):
            console.say(f"{name} is complete: {run.progress.step:,} steps, {describe_best(run)}; nothing to do")
            return "succeeded"
        try:
            with ExitStack() as parts:
                parts.enter_context(closing(run.checkpoints.saver))
                parts.enter_context(closing(run.report.metrics_log))
                parts.enter_context(closing(run.stall_watchdog))
                for observer in run.observers:
                    parts.enter_context(closing(observer))
                _attach_watchers(run, contract)
                is_done = train(run)
                run.checkpoints.saver.wait()
                selected = select_weights(run) if is_done else None
        except Exception as err:
            failure = explain(err, run)
            record_failure(run, failure)
            raise failure from err
    # The other processes exit here: they need not wait for the outputs.
    if selected:
        finish(run, selected, contract)
    if not is_done:
        record_stop(run)
    return "succeeded" if is_done else "stopped"


def _assemble(
    name: str,
    recipe: Recipe[Any],
    contract: RunContract,
    group: ProcessGroup,
    stop: StopFlag,
    console: Console,
    profile: ProfileRequest | None,
) -> Run:
    settings = recipe.settings
    check_outputs(settings, contract)
    seed_all(seed=settings.seed, rank=0, step=0)  # the same initial weights on every process
    workload = recipe.build(settings)
    plan = plan_batch(
        batch_size=settings.batch_size,
        world_size=group.size,
        samples=len(workload.train_data),
        epochs=settings.epochs,
        micro_batch=settings.micro_batch,
    )
    scale_learning_rate(settings.optimizer, batch_size=plan.batch_size)  # may refuse: before any folder is made
    check_settings(settings, workload.model, group)
    observers = _make_observers(profile, plan, group, contract, console)
    opened = open_run_folders(name, settings, workload.model, group, contract, console.say)
    saver = Saver(opened.store)
    _announce(name, workload, plan, group, contract, console)
    _announce_rates(settings, plan, console)
    learner = make_learner(
        settings, workload, group, plan, restart_file=contract.checkpoint_dir / RESTART_FILE, say=console.say
    )
    spec = RunSpec(
        name=name,
        settings=settings,
        workload=workload,
        group=group,
        plan=plan,
        fingerprint=opened.fingerprint,
        rebuild=lambda: recipe.build(settings).model,
    )
    run = Run(
        spec=spec,
        learner=learner,
        progress=Progress(),
        randomness=RandomStreams(seed=settings.seed, rank=group.rank, device=group.device),
        train_loader=_make_loader(workload.train_data, workload, settings, group),
        validation_loader=_make_loader(workload.validation_data, workload, settings, group),
        checkpoints=Checkpoints(store=opened.store, saver=saver),
        report=Report(
            console=console,
            status_file=opened.status_file,
            metrics_log=MetricsLog(contract.output_dir / "metrics.jsonl"),
            meter=make_meter(workload, settings.track, group.device, batch_size=plan.batch_size, devices=group.size),
        ),
        control=Control(group, stop, contract, settings.checkpoint, lambda: saver.seconds),
        stall_watchdog=StallWatchdog(settings.stall),
        observers=observers,
    )
    _start_from(run, opened.state)
    return run


def _make_observers(
    profile: ProfileRequest | None, plan: BatchPlan, group: ProcessGroup, contract: RunContract, console: Console
) -> list[StepObserver]:
    if profile is None:
        return []
    profile.check(plan.total_steps)
    profiler = StepProfiler(
        profile,
        contract.output_dir,
        device=group.device,
        rank=group.rank,
        say=console.say,
        path_for_user=contract.path_for_user,
    )
    return [profiler]


def _make_loader(
    source: SampleSource | StreamSource, workload: Workload, settings: Settings, group: ProcessGroup
) -> BatchLoader:
    return BatchLoader(
        source,
        collate=workload.collate,
        seed=settings.seed,
        device=group.device,
        rank=group.rank,
        world_size=group.size,
        workers=settings.workers,
    )


def _announce(
    name: str, workload: Workload, plan: BatchPlan, group: ProcessGroup, contract: RunContract, console: Console
) -> None:
    parameters = sum(parameter.numel() for parameter in workload.model.parameters())
    device = torch.cuda.get_device_name(group.device) if group.device.type == "cuda" else "cpu"
    title = f"{name} ({contract.run_id})" if contract.run_id else name
    console.say(render_banner(title, device=device, parameters=parameters, plan=plan))
    visible = torch.cuda.device_count()
    if contract.gpus_per_node is not None and contract.gpus_per_node > visible:
        console.say(f"this machine should have {contract.gpus_per_node} GPUs, but {visible} are visible")


def _announce_rates(settings: Settings, plan: BatchPlan, console: Console) -> None:
    peak = scale_learning_rate(settings.optimizer, batch_size=plan.batch_size)
    if settings.optimizer.scaling != "none":
        console.say(
            f"learning rate {peak:.3g}: {settings.optimizer.learning_rate:.3g} at a batch of "
            f"{settings.optimizer.base_batch}, scaled to {plan.batch_size} ({settings.optimizer.scaling})"
        )
    for concern in (find_batch_concern(plan), find_schedule_concern(settings.schedule, plan)):
        if concern:
            console.say(f"note: {concern}")


def _start_from(run: Run, state: State | None) -> None:
    seed_all(seed=run.settings.seed, rank=run.group.rank, step=0)
    if state is not None:
        _restore(run, state)
        at = f"epoch {run.progress.epoch + 1}, {run.progress.step_in_epoch} steps in"
        if run.progress.epoch < run.settings.epochs:
            run.console.say(f"resumed from step {run.progress.step} ({at})")


def _restore(run: Run, state: State) -> None:
    run.learner.load(state)
    run.progress = restore_progress(state["progress"])
    run.checkpoints.saved_position = run.progress.position
    if len(state["rng"]) == run.group.size:
        restore_rng(state["rng"][run.group.rank], run.group.device)
        if state.get("micro_batch") == run.settings.micro_batch:  # not if the user has changed the setting
            run.learner.micro_batch = min(run.learner.micro_batch, state["micro_batches"][run.group.rank])
        return
    writers = f"{len(state['rng'])} processes" if state["rng"] else "one that ran out of memory"
    run.console.say(f"written by {writers}, now {run.group.size}: the same global batches follow")
    seed_all(seed=run.settings.seed, rank=run.group.rank, step=run.progress.step)


def _is_complete(run: Run, *, is_local_main: bool) -> bool:
    """Return whether nothing is left to do; if something is, open the metrics log and set the status to "running"."""
    at = {"step": run.progress.step, "epochs_validated": run.progress.epoch}
    rows = collect_history(run.report.metrics_log, run.group, is_local_main=is_local_main, **at)

    def on_main() -> bool:
        left = run.report.status_file.read()
        is_trained = run.progress.epoch >= run.settings.epochs
        if is_trained and left.get("state") == "succeeded" and left.get("step") == run.progress.step:
            return True
        run.report.metrics_log.replace(rows)
        run.report.status_file.write("running", run.status())
        return False

    is_complete = run.group.broadcast_from_main(on_main)
    if not is_complete:
        drop_former_files(run.report.metrics_log, run.report.status_file, run.group, is_local_main=is_local_main)
    return is_complete


def _attach_watchers(run: Run, contract: RunContract) -> None:
    if not run.group.is_main:
        return

    def report(stall: Stall | None) -> None:
        run.report.status_file.warn(f"stalled: {stall}" if stall else None, run.status())
        run.console.say(f"stalled at step {run.progress.step}: {stall}" if stall else "no longer stalled")

    run.stall_watchdog.start(report)
    trackers = open_trackers(
        run.settings.track,
        contract.output_dir,
        name=run.spec.name,
        run_id=contract.task_id,
        step=run.progress.step,
        config=flatten_settings(run.settings),
    )
    run.report.metrics_log.attach_trackers(trackers)
