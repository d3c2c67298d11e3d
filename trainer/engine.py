"""Putting a run together, resuming it, training it, and saying how it ended."""

from contextlib import closing
from typing import Any, Literal

import torch

from trainer.assembly import check_settings, make_learner
from trainer.batch import BatchPlan, find_batch_concern, plan_batch
from trainer.checkpoints.saver import Saver
from trainer.checkpoints.tree import State
from trainer.config import Settings, flatten_settings
from trainer.console import Console, render_banner
from trainer.contract import RunContract
from trainer.control import Control
from trainer.distributed import World, joined_world
from trainer.errors import (
    DeviceMemoryError,
    TrainerError,
    first_line,
)
from trainer.loop import train
from trainer.memory import RESTART_FILE, is_out_of_memory
from trainer.outputs import Chosen, check_outputs, choose_weights, write_outputs
from trainer.progress import Progress, restore_progress
from trainer.recipe import Recipe, Workload
from trainer.resuming import open_folders
from trainer.rng import restore_rng, seed_all
from trainer.rows import make_meter
from trainer.run import Run, describe_best
from trainer.schedule import find_schedule_concern, scale_learning_rate
from trainer.signals import StopFlag
from trainer.stall import Stall, StallWatch
from trainer.status import MetricsLog
from trainer.trackers import open_trackers

Outcome = Literal["succeeded", "stopped"]


def run_recipe(name: str, recipe: Recipe[Any], contract: RunContract, stop: StopFlag) -> Outcome:
    """Train a recipe from its newest sound checkpoint, or from the beginning, to its end or to a stop.

    Raises:
        BadRequestError: the batch, the devices or the folders don't fit; nothing was touched.
        CheckpointMismatchError: the checkpoint folder belongs to another configuration.
        TrainerError: training failed; status.json says "failed" and why.
    """
    console = Console(speaks=contract.rank == 0)
    with joined_world(contract) as world:
        run = _assemble(name, recipe, contract, world, stop, console)
        if _is_complete(run):
            console.say(f"{name} is complete: {run.progress.step:,} steps, {describe_best(run)}; nothing to do")
            return "succeeded"
        try:
            with closing(run.saver), closing(run.metrics_log), closing(run.stall_watch):
                _attach_watchers(name, run, contract)
                is_done = train(run)
                run.saver.wait()
                chosen = choose_weights(run) if is_done else None
        except Exception as err:
            failure = _explain(err, run)
            _record_failure(run, failure)
            raise failure from err
    # The other processes are done, and need not wait for the outputs.
    if chosen:
        _finish(name, run, chosen, contract)
    if not is_done:
        _record_stop(run)
    return "succeeded" if is_done else "stopped"


def _assemble(
    name: str, recipe: Recipe[Any], contract: RunContract, world: World, stop: StopFlag, console: Console
) -> Run:
    settings = recipe.settings
    check_outputs(settings, contract)
    seed_all(seed=settings.seed, rank=0, step=0)  # the same first weights on every process
    workload = recipe.build(settings)
    plan = plan_batch(
        batch_size=settings.batch_size,
        world_size=world.size,
        samples=len(workload.train_data),
        epochs=settings.epochs,
        micro_batch=settings.micro_batch,
    )
    scale_learning_rate(settings.optimizer, batch_size=plan.batch_size)  # refused before any folder is made
    check_settings(settings, workload.model, world)
    opened = open_folders(name, settings, workload.model, world, contract, console.say)
    saver = Saver(opened.store)
    _announce(name, workload, plan, world, contract, console)
    _announce_rates(settings, plan, console)
    learner = make_learner(
        settings, workload, world, plan, restart_file=contract.checkpoint_dir / RESTART_FILE, say=console.say
    )
    run = Run(
        settings=settings,
        workload=workload,
        world=world,
        plan=plan,
        fingerprint=opened.fingerprint,
        learner=learner,
        progress=Progress(),
        store=opened.store,
        saver=saver,
        status_file=opened.status_file,
        metrics_log=MetricsLog(contract.output_dir / "metrics.jsonl"),
        control=Control(world, stop, contract, settings.checkpoint, lambda: saver.seconds),
        console=console,
        meter=make_meter(workload, settings.track, world.device, batch_size=plan.batch_size, devices=world.size),
        stall_watch=StallWatch(settings.stall),
        rebuild=lambda: recipe.build(settings).model,
    )
    _start_from(run, opened.state)
    return run


def _announce(
    name: str, workload: Workload, plan: BatchPlan, world: World, contract: RunContract, console: Console
) -> None:
    parameters = sum(parameter.numel() for parameter in workload.model.parameters())
    device = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "cpu"
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
    seed_all(seed=run.settings.seed, rank=run.world.rank, step=0)
    if state is not None:
        _restore(run, state)
        at = f"epoch {run.progress.epoch + 1}, {run.progress.step_in_epoch} steps in"
        if run.progress.epoch < run.settings.epochs:
            run.console.say(f"resumed from step {run.progress.step} ({at})")


def _restore(run: Run, state: State) -> None:
    run.learner.load(state)
    run.progress = restore_progress(state["progress"])
    run.saved_position = run.progress.position
    if len(state["rng"]) == run.world.size:
        restore_rng(state["rng"][run.world.rank], run.world.device)
        if state.get("micro_batch") == run.settings.micro_batch:  # else another one was asked for since
            run.learner.micro_batch = min(run.learner.micro_batch, state["micro_batches"][run.world.rank])
        return
    writers = f"{len(state['rng'])} processes" if state["rng"] else "one that ran out of memory"
    run.console.say(f"written by {writers}, now {run.world.size}: the same global batches follow")
    seed_all(seed=run.settings.seed, rank=run.world.rank, step=run.progress.step)


def _is_complete(run: Run) -> bool:
    """Tell whether there is nothing left to do; else open the metrics log and say "running"."""

    def on_main() -> bool:
        left = run.status_file.read()
        is_trained = run.progress.epoch >= run.settings.epochs
        if is_trained and left.get("state") == "succeeded" and left.get("step") == run.progress.step:
            return True
        run.metrics_log.rewind(step=run.progress.step, epochs_validated=run.progress.epoch)
        run.status_file.write("running", run.status())
        return False

    return run.world.from_main(on_main)


def _attach_watchers(name: str, run: Run, contract: RunContract) -> None:
    if not run.world.is_main:
        return

    def report(stall: Stall | None) -> None:
        run.status_file.warn(f"stalled: {stall}" if stall else None, run.status())
        run.console.say(f"stalled at step {run.progress.step}: {stall}" if stall else "the steps go on")

    run.stall_watch.start(report)
    trackers = open_trackers(
        run.settings.track,
        contract.output_dir,
        name=name,
        run_id=contract.run_id,
        step=run.progress.step,
        config=flatten_settings(run.settings),
    )
    run.metrics_log.follow_with(trackers)


def _finish(name: str, run: Run, chosen: Chosen, contract: RunContract) -> None:
    try:
        write_outputs(name, run, chosen, contract)
    except Exception as err:
        _record_failure(run, _explain(err, run))
        raise
    run.status_file.write("succeeded", run.status())
    folder = contract.show(contract.output_dir)
    run.console.say(f"succeeded: {run.progress.step:,} steps, {describe_best(run)}, results in {folder}")


def _record_stop(run: Run) -> None:
    if not run.world.is_main:
        return
    run.status_file.write("stopped", run.status())
    kept = run.store.newest_name() or "nothing trained yet, nothing to keep"
    run.console.say(f"stopped by {run.stop_reason} at step {run.progress.step}: {kept}; the same command goes on")


def _record_failure(run: Run, failure: BaseException) -> None:
    if run.world.is_main:
        run.status_file.write("failed", run.status(), error=first_line(failure))


def _explain(err: Exception, run: Run) -> Exception:
    """Turn what has a known cause into an error of ours; the rest stays what it is."""
    if isinstance(err, TrainerError) or not is_out_of_memory(err):
        return err
    return DeviceMemoryError(
        f"out of memory on {run.world.device} at step {run.progress.step}",
        why=first_line(err),
        fix=f"use a smaller global batch than --set batch_size={run.plan.batch_size}, or more processes",
    )
