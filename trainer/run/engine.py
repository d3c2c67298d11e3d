"""Runs a recipe: assembles the run, resumes it, trains, and records how it ended."""

from contextlib import closing
from typing import Any, Literal

import torch

from trainer.base.config import Settings
from trainer.base.contract import RunContract
from trainer.base.errors import DeviceMemoryError, TrainerError, first_line
from trainer.base.memory import RESTART_FILE, is_out_of_memory
from trainer.base.recipe import Recipe, Workload
from trainer.base.rng import restore_rng, seed_all
from trainer.base.setting import flatten_settings
from trainer.base.signals import StopFlag
from trainer.base.sources import SampleSource, StreamSource
from trainer.checkpoints.saver import Saver
from trainer.checkpoints.tree import State
from trainer.data.loader import BatchLoader
from trainer.group.distributed import ProcessGroup, process_group
from trainer.report.console import Console, render_banner
from trainer.report.rows import make_meter
from trainer.report.status import MetricsLog
from trainer.report.trackers import open_trackers
from trainer.run.control import Control
from trainer.run.history import collect_history, drop_former_files
from trainer.run.loop import train
from trainer.run.outputs import SelectedWeights, check_outputs, select_weights, write_outputs
from trainer.run.progress import Progress, restore_progress
from trainer.run.resume import open_run_folders
from trainer.run.run import Run, describe_best
from trainer.run.stall import Stall, StallWatchdog
from trainer.step.assembly import check_settings, make_learner
from trainer.step.batch import BatchPlan, find_batch_concern, plan_batch
from trainer.step.precision import explain_nondeterminism
from trainer.step.schedule import find_schedule_concern, scale_learning_rate

Outcome = Literal["succeeded", "stopped"]


def run_recipe(name: str, recipe: Recipe[Any], contract: RunContract, stop: StopFlag) -> Outcome:
    """Train a recipe from its newest intact checkpoint, or from the beginning, to its end or to a stop.

    Raises:
        BadRequestError: the batch, the devices or the folders can't be used; nothing was changed.
        CheckpointMismatchError: the checkpoint folder belongs to another configuration.
        TrainerError: training failed; status.json has "failed" and the reason.
    """
    console = Console(enabled=contract.rank == 0)
    with process_group(contract) as group:
        run = _assemble(name, recipe, contract, group, stop, console)
        if _is_complete(run, is_local_main=contract.local_rank == 0):
            console.say(f"{name} is complete: {run.progress.step:,} steps, {describe_best(run)}; nothing to do")
            return "succeeded"
        try:
            with closing(run.saver), closing(run.metrics_log), closing(run.stall_watchdog):
                _attach_watchers(name, run, contract)
                is_done = train(run)
                run.saver.wait()
                selected = select_weights(run) if is_done else None
        except Exception as err:
            failure = _explain(err, run)
            _record_failure(run, failure)
            raise failure from err
    # The other processes exit here: they need not wait for the outputs.
    if selected:
        _finish(name, run, selected, contract)
    if not is_done:
        _record_stop(run)
    return "succeeded" if is_done else "stopped"


def _assemble(
    name: str, recipe: Recipe[Any], contract: RunContract, group: ProcessGroup, stop: StopFlag, console: Console
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
    opened = open_run_folders(name, settings, workload.model, group, contract, console.say)
    saver = Saver(opened.store)
    _announce(name, workload, plan, group, contract, console)
    _announce_rates(settings, plan, console)
    meter = make_meter(
        workload, settings.track, group.device, batch_size=plan.batch_size, devices=group.size, say=console.say
    )
    learner = make_learner(
        settings, workload, group, plan, restart_file=contract.checkpoint_dir / RESTART_FILE, say=console.say
    )
    run = Run(
        settings=settings,
        workload=workload,
        group=group,
        plan=plan,
        fingerprint=opened.fingerprint,
        learner=learner,
        train_loader=_make_loader(workload.train_data, workload, settings, group),
        validation_loader=_make_loader(workload.validation_data, workload, settings, group),
        progress=Progress(),
        store=opened.store,
        saver=saver,
        status_file=opened.status_file,
        metrics_log=MetricsLog(contract.output_dir / "metrics.jsonl"),
        control=Control(group, stop, contract, settings.checkpoint, lambda: saver.seconds),
        console=console,
        meter=meter,
        stall_watchdog=StallWatchdog(settings.stall),
        rebuild=lambda: recipe.build(settings).model,
    )
    _start_from(run, opened.state)
    return run


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
    run.saved_position = run.progress.position
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
    rows = collect_history(run.metrics_log, run.group, is_local_main=is_local_main, **at)

    def on_main() -> bool:
        left = run.status_file.read()
        is_trained = run.progress.epoch >= run.settings.epochs
        if is_trained and left.get("state") == "succeeded" and left.get("step") == run.progress.step:
            return True
        run.metrics_log.replace(rows)
        run.status_file.write("running", run.status())
        return False

    is_complete = run.group.broadcast_from_main(on_main)
    if not is_complete:
        drop_former_files(run.metrics_log, run.status_file, run.group, is_local_main=is_local_main)
    return is_complete


def _attach_watchers(name: str, run: Run, contract: RunContract) -> None:
    if not run.group.is_main:
        return

    def report(stall: Stall | None) -> None:
        run.status_file.warn(f"stalled: {stall}" if stall else None, run.status())
        run.console.say(f"stalled at step {run.progress.step}: {stall}" if stall else "no longer stalled")

    run.stall_watchdog.start(report)
    trackers = open_trackers(
        run.settings.track,
        contract.output_dir,
        name=name,
        run_id=contract.task_id,
        step=run.progress.step,
        config=flatten_settings(run.settings),
    )
    run.metrics_log.attach_trackers(trackers)


def _finish(name: str, run: Run, selected: SelectedWeights, contract: RunContract) -> None:
    try:
        write_outputs(name, run, selected, contract)
    except Exception as err:
        _record_failure(run, _explain(err, run))
        raise
    run.status_file.write("succeeded", run.status())
    folder = contract.path_for_user(contract.output_dir)
    run.console.say(f"succeeded: {run.progress.step:,} steps, {describe_best(run)}, results in {folder}")


def _record_stop(run: Run) -> None:
    if not run.group.is_main:
        return
    run.status_file.write("stopped", run.status())
    kept = run.store.newest_name() or "nothing trained yet, nothing to keep"
    run.console.say(f"stopped by {run.stop_reason} at step {run.progress.step}: {kept}; the same command resumes")


def _record_failure(run: Run, failure: BaseException) -> None:
    if run.group.is_main:
        run.status_file.write("failed", run.status(), error=first_line(failure))


def _explain(err: Exception, run: Run) -> Exception:
    """Turn an error with a known cause into a TrainerError; return any other one unchanged."""
    if isinstance(err, TrainerError) or not is_out_of_memory(err):
        return explain_nondeterminism(err) or err
    return DeviceMemoryError(
        f"out of memory on {run.group.device} at step {run.progress.step}",
        why=first_line(err),
        fix=f"use a smaller global batch than --set batch_size={run.plan.batch_size}, or more processes",
    )
