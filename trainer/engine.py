"""Putting a run together, resuming it, training it, and saying how it ended."""

import hashlib
from typing import Any, Literal

import torch
from torch import nn

from trainer.batch import plan_batch
from trainer.checkpoint import CheckpointStore, State
from trainer.config import OptimizerSettings, Settings, flatten_settings
from trainer.console import Console, render_banner
from trainer.contract import RunContract
from trainer.control import Control
from trainer.distributed import World, joined_world
from trainer.errors import (
    BadRequestError,
    CheckpointMismatchError,
    DeviceMemoryError,
    TrainerError,
    first_line,
)
from trainer.loop import train
from trainer.outputs import write_outputs
from trainer.progress import new_progress, restore_progress
from trainer.recipe import Recipe
from trainer.rng import restore_rng, seed_all
from trainer.run import Run, describe_best
from trainer.signals import StopFlag
from trainer.status import MetricsLog, StatusFile

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
            is_done = train(run)
        except Exception as err:
            failure = _explain(err, run)
            _record_failure(run, failure)
            raise failure from err
    # The other processes are done, and need not wait for the outputs.
    if is_done and world.is_main:
        _finish(name, run, contract)
    if not is_done:
        _record_stop(run)
    return "succeeded" if is_done else "stopped"


def _assemble(
    name: str, recipe: Recipe[Any], contract: RunContract, world: World, stop: StopFlag, console: Console
) -> Run:
    settings = recipe.settings
    seed_all(seed=settings.seed, rank=0, step=0)  # the same first weights on every process
    workload = recipe.build(settings)
    plan = plan_batch(
        batch_size=settings.batch_size,
        world_size=world.size,
        samples=len(workload.train_data),
        epochs=settings.epochs,
    )
    model = workload.model.to(world.device)
    store = CheckpointStore(contract.checkpoint_dir, keep=settings.checkpoint.keep)
    status_file = StatusFile(contract.output_dir / "status.json")
    fingerprint = fingerprint_run(name, settings, model)
    state = world.from_main(lambda: _open_folders(store, status_file, fingerprint, console))
    run = Run(
        settings=settings,
        workload=workload,
        world=world,
        plan=plan,
        fingerprint=fingerprint,
        model=model,
        wrapped=model,
        optimizer=make_optimizer(settings.optimizer, model),
        progress=new_progress(world.device),
        store=store,
        status_file=status_file,
        metrics_log=MetricsLog(contract.output_dir / "metrics.jsonl"),
        control=Control(world, stop, contract, settings.checkpoint),
        console=console,
    )
    _announce(name, run, contract)
    _start_from(run, state)
    run.wrapped = world.wrap(model)
    return run


def make_optimizer(settings: OptimizerSettings, model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer that the settings name, over all parameters."""
    if settings.name == "sgd":
        return torch.optim.SGD(
            model.parameters(),
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.momentum > 0,
        )
    return torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)


def fingerprint_run(name: str, settings: Settings, model: nn.Module) -> dict[str, Any]:
    """List what a checkpoint and a run must have in common for one to go on from the other."""
    shapes = "\n".join(f"{key} {tuple(value.shape)} {value.dtype}" for key, value in model.state_dict().items())
    digest = hashlib.sha256(shapes.encode()).hexdigest()[:16]
    return {"recipe": name, **flatten_settings(settings, only_fixed=True), "model's tensors": digest}


def _open_folders(
    store: CheckpointStore, status_file: StatusFile, fingerprint: dict[str, Any], console: Console
) -> State | None:
    try:
        store.prepare()
        status_file.prepare()
    except OSError as err:
        raise BadRequestError(
            "the output or checkpoint folder cannot be used",
            why=first_line(err),
            fix="choose folders that can be written with --output-dir and --checkpoint-dir",
        ) from err
    state = store.load_newest(console.say)
    if state is not None:
        _check_fingerprint(state["fingerprint"], fingerprint)
    return state


def _check_fingerprint(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    different = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
    if not different:
        return
    details = ", ".join(f"{key} was {theirs.get(key)} and is {ours.get(key)}" for key in different)
    raise CheckpointMismatchError(
        "the checkpoints here are of another configuration",
        why=details,
        fix="use the same settings to go on, or start anew with another --output-dir and --checkpoint-dir",
    )


def _announce(name: str, run: Run, contract: RunContract) -> None:
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    device = torch.cuda.get_device_name(run.world.device) if run.world.device.type == "cuda" else "cpu"
    title = f"{name} ({contract.run_id})" if contract.run_id else name
    run.console.say(render_banner(title, device=device, parameters=parameters, plan=run.plan))
    visible = torch.cuda.device_count()
    if contract.gpus_per_node is not None and contract.gpus_per_node > visible:
        run.console.say(f"this machine should have {contract.gpus_per_node} GPUs, but {visible} are visible")


def _start_from(run: Run, state: State | None) -> None:
    seed_all(seed=run.settings.seed, rank=run.world.rank, step=0)
    if state is not None:
        _restore(run, state)
        at = f"epoch {run.progress.epoch + 1}, {run.progress.step_in_epoch} steps in"
        if run.progress.epoch < run.settings.epochs:
            run.console.say(f"resumed from step {run.progress.step} ({at})")


def _restore(run: Run, state: State) -> None:
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.progress = restore_progress(state["progress"], run.world)
    run.saved_position = run.progress.position
    if len(state["rng"]) == run.world.size:
        restore_rng(state["rng"][run.world.rank], run.world.device)
        return
    run.console.say(f"written by {len(state['rng'])} processes, now {run.world.size}: the same global batches follow")
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


def _finish(name: str, run: Run, contract: RunContract) -> None:
    try:
        write_outputs(name, run, contract.output_dir)
    except Exception as err:
        _record_failure(run, _explain(err, run))
        raise
    run.status_file.write("succeeded", run.status())
    run.console.say(f"succeeded: {run.progress.step:,} steps, {describe_best(run)}, results in {contract.output_dir}")


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
    if isinstance(err, TrainerError) or not _is_out_of_memory(err):
        return err
    return DeviceMemoryError(
        f"out of memory on {run.world.device} at step {run.progress.step}",
        why=first_line(err),
        fix=f"use a smaller global batch than --set batch_size={run.plan.batch_size}, or more processes",
    )


def _is_out_of_memory(err: Exception) -> bool:
    # The CPU's allocator raises a plain RuntimeError ("DefaultCPUAllocator: can't allocate memory").
    return isinstance(err, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(err)
