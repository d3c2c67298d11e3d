"""Runs a recipe: assembles the run, resumes it, trains, and records how it ended."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

import torch
from torch import nn

from trainer.base.config import Settings
from trainer.base.config_file import CONFIG_FILE, render_changes, save_config
from trainer.base.contract import RunContract
from trainer.base.errors import TrainerError
from trainer.base.memory import RESTART_FILE
from trainer.base.recipe import BuiltWorkload, Recipe, Workload
from trainer.base.rng import RandomStreams
from trainer.base.setting import flatten_settings
from trainer.base.signals import StopFlag
from trainer.base.sources import SampleSource, StreamSource
from trainer.base.start_from import StartFrom
from trainer.checkpoints.saver import Saver
from trainer.data.loader import BatchLoader
from trainer.find.auto_rate import settle_rate
from trainer.group.distributed import ProcessGroup, process_group
from trainer.report.console import Console, render_banner
from trainer.report.profile import ProfileRequest, open_profiler
from trainer.report.publish.best_push import open_pusher
from trainer.report.rows import make_meter
from trainer.report.samples import FOLDER as SAMPLES
from trainer.report.samples import SampleFolder
from trainer.report.status import MetricsLog
from trainer.report.stopwatch import Lap
from trainer.report.trackers import TRACKER_FILE, open_trackers, read_tracker_id
from trainer.run.best import choose_best_metric
from trainer.run.control import Control
from trainer.run.ending import describe_best, explain, finish_together, record_failure, record_stop
from trainer.run.history import collect_history, drop_former_files
from trainer.run.loop import train
from trainer.run.outputs import check_outputs, select_weights
from trainer.run.progress import Progress
from trainer.run.resume import open_run_folders, start_run
from trainer.run.run import Checkpoints, Report, Run, RunSpec, StepObserver
from trainer.run.stall import Stall, StallWatchdog
from trainer.run.triggers import make_triggers
from trainer.start.weights import InitialWeights
from trainer.step.assembly import check_settings, make_learner
from trainer.step.batch import BatchPlan, find_batch_concern, plan_batch
from trainer.step.build import build_workload
from trainer.step.schedule import find_schedule_concern, plan_rates, scale_learning_rate

Outcome = Literal["succeeded", "stopped"]


def run_recipe(
    name: str,
    recipe: Recipe[Any],
    contract: RunContract,
    stop: StopFlag,
    start: StartFrom = StartFrom(),  # noqa: B008 - frozen
    *,
    profile: ProfileRequest | None = None,
) -> Outcome:
    """Train a recipe from its newest intact checkpoint, else from `start`, to its end or to a stop.

    Raises:
        BadRequestError: the batch, the devices or the folders can't be used; nothing was changed.
        CheckpointMismatchError: the checkpoint folder belongs to another configuration.
        TrainerError: training failed; status.json has "failed" and the reason.
    """
    console = Console(enabled=contract.rank == 0)
    check_outputs(recipe.settings, contract)
    with process_group(contract) as group:
        recipe = settle_rate(recipe, contract, group, start, console.say)
        run = _assemble(name, recipe, contract, group, stop, console, start, profile)
        if _is_complete(run, is_local_main=contract.local_rank == 0):
            console.say(f"{name} is complete: {run.progress.step:,} steps, {describe_best(run)}; nothing to do")
            return "succeeded"
        try:
            with _closing_parts(run):
                _attach_watchers(run, contract)
                is_done = train(run)
                run.checkpoints.saver.wait()
                selected = select_weights(run) if is_done else None
        except Exception as err:
            failure = explain(err, run)
            record_failure(run, failure)
            raise failure from err
        if is_done:
            finish_together(run, selected, contract, stop)
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
    start: StartFrom,
    profile: ProfileRequest | None,
) -> Run:
    settings = recipe.settings
    workload = build_workload(recipe, group)
    plan = plan_batch(
        batch_size=settings.batch_size,
        world_size=group.size,
        samples=len(workload.train_data),
        epochs=settings.epochs,
        micro_batch=settings.micro_batch,
        max_steps=settings.max_steps,
    )
    best = choose_best_metric(settings.validate, workload)
    rate_of = plan_rates(settings, plan, workload.make_schedule)  # may refuse: before any folder is made
    check_settings(settings, workload.model, group)
    observers: list[StepObserver] = []
    if profile is not None:
        observers.append(open_profiler(profile, plan.total_steps, group, contract, console.say))
    opened = open_run_folders(name, settings, workload, group, contract, console.say, plan=plan, start=start)
    group.broadcast_from_main(lambda: save_config(contract.output_dir / CONFIG_FILE, settings))
    saver = Saver(opened.store, device=group.device)
    _announce(name, workload, plan, group, contract, console)
    if changes := render_changes(settings, recipe.defaults or settings):
        console.say(f"settings: {changes}")
    _announce_rates(settings, plan, console)
    if workload.samples is None and (settings.samples.every_epochs or settings.samples.every_steps):
        console.say("samples ignored: the recipe makes none (Workload.samples)")
    meter = make_meter(
        workload, settings.track, group.device, batch_size=plan.batch_size, devices=group.size, say=console.say
    )
    learner = make_learner(
        settings, workload, group, plan, restart_file=contract.checkpoint_dir / RESTART_FILE, say=console.say
    )
    spec = RunSpec(
        name=name,
        description=recipe.description,
        settings=settings,
        workload=workload,
        group=group,
        plan=plan,
        fingerprint=opened.fingerprint,
        triggers=make_triggers(settings, plan),
        best=best,
        rate_of=rate_of,
        started_from=opened.origin,
        rebuild=lambda: _rebuild(recipe, opened.weights if workload.trainable_only else None),
    )
    progress = Progress()
    run = Run(
        spec=spec,
        learner=learner,
        progress=progress,
        randomness=RandomStreams(seed=settings.seed, rank=group.rank, device=group.device),
        train_loader=_make_loader(workload.train_data, workload, settings, group),
        validation_loader=_make_loader(workload.validation_data, workload, settings, group),
        checkpoints=Checkpoints(store=opened.store, saver=saver, saved_position=progress.position),
        report=Report(
            console=console,
            status_file=opened.status_file,
            metrics_log=MetricsLog(contract.output_dir / "metrics.jsonl"),
            samples=SampleFolder(contract.output_dir / SAMPLES, settings.samples, steps_per_epoch=plan.steps_per_epoch),
            lap=Lap(lambda: _settle(group.device)),
            meter=meter,
            pusher=open_pusher(
                settings.publish, opened.store, contract.hub, console.say, name=name, is_possible=not workload.exports
            ),
        ),
        control=Control(group, stop, contract, settings.checkpoint, lambda: saver.seconds),
        stall_watchdog=StallWatchdog(settings.stall),
        observers=observers,
    )
    start_run(run, opened)
    return run


def _rebuild(recipe: Recipe[Any], weights: InitialWeights | None) -> nn.Module:
    """Build the model again, with the weights that it was given at the start."""
    model = build_workload(recipe).model
    if weights:
        model.load_state_dict(weights.held, strict=False)
    return model


def _settle(device: torch.device) -> None:
    """Wait until a GPU has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _closing_parts(run: Run) -> Iterator[None]:
    """Close what a run has opened at the end of the block: what writes last, so that it has everything."""
    with ExitStack() as stack:
        for close in (
            run.checkpoints.saver.close,
            run.report.metrics_log.close,
            run.train_loader.close,
            run.validation_loader.close,
            run.stall_watchdog.close,
            run.report.pusher.close,
            *(observer.close for observer in run.observers),
        ):
            stack.callback(close)
        yield


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
    name: str, workload: BuiltWorkload, plan: BatchPlan, group: ProcessGroup, contract: RunContract, console: Console
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
            f"learning rate {peak:.3g}: {settings.optimizer.rate:.3g} at a batch of "
            f"{settings.optimizer.base_batch}, scaled to {plan.batch_size} ({settings.optimizer.scaling})"
        )
    for concern in (find_batch_concern(plan), find_schedule_concern(settings.schedule, plan)):
        if concern:
            console.say(f"note: {concern}")


def _is_complete(run: Run, *, is_local_main: bool) -> bool:
    """Return whether nothing is left to do; if something is, open the metrics log and set the status to "running"."""
    at = {"step": run.progress.step, "validated_at": run.progress.validated_at}
    rows = collect_history(run.report.metrics_log, run.group, is_local_main=is_local_main, **at)

    def on_main() -> bool:
        left = run.report.status_file.read()
        is_trained = run.spec.triggers.is_over(run.progress)
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
    id_file = contract.checkpoint_dir / TRACKER_FILE
    # Another machine may have had the main process before.
    kept_ids = [kept for kept in run.group.all_gather(read_tracker_id(id_file)) if kept]
    if not run.group.is_main:
        return

    def report(stall: Stall | None) -> None:
        with suppress(TrainerError):  # of a full disk, which the loop reports
            run.report.status_file.warn(f"stalled: {stall}" if stall else None, run.status())
        run.console.say(f"stalled at step {run.progress.step}: {stall}" if stall else "no longer stalled")

    run.stall_watchdog.start(report)
    run.report.pusher.start()
    trackers = open_trackers(
        run.settings.track,
        contract.output_dir,
        name=contract.task_id or run.spec.name,
        run_id=kept_ids[0] if kept_ids else contract.task_id,
        step=run.progress.step,
        config={**flatten_settings(run.settings), "started_from": run.spec.started_from},
        id_file=id_file,
    )
    run.report.metrics_log.attach_trackers(trackers)
