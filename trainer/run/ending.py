"""How a run ends: its outputs, its last status, and what it says."""

from trainer.base.contract import RunContract
from trainer.base.errors import DeviceMemoryError, TrainerError, first_line
from trainer.base.memory import is_out_of_memory
from trainer.report.console import render_metric
from trainer.run.outputs import SelectedWeights, write_outputs
from trainer.run.run import Run


def finish(run: Run, selected: SelectedWeights, contract: RunContract) -> None:
    """Write the outputs of a complete run and its last status.

    Raises:
        TrainerError: an output could not be made; status.json has "failed" and the reason.
    """
    try:
        write_outputs(run, selected, contract, summary=describe_best(run))
    except Exception as err:
        record_failure(run, explain(err, run))
        raise
    run.report.status_file.write("succeeded", run.status())
    folder = contract.path_for_user(contract.output_dir)
    run.console.say(f"succeeded: {run.progress.step:,} steps, {describe_best(run)}, results in {folder}")


def record_stop(run: Run) -> None:
    """Record that the run was stopped and can be resumed."""
    if not run.group.is_main:
        return
    run.report.status_file.write("stopped", run.status())
    kept = run.checkpoints.store.newest_name() or "nothing trained yet, nothing to keep"
    run.console.say(f"stopped by {run.stop_reason} at step {run.progress.step}: {kept}; the same command resumes")


def record_failure(run: Run, failure: BaseException) -> None:
    """Record that the run failed, and why."""
    if run.group.is_main:
        run.report.status_file.write("failed", run.status(), error=first_line(failure))


def explain(err: Exception, run: Run) -> Exception:
    """Turn an error with a known cause into a TrainerError; return any other one unchanged."""
    if isinstance(err, TrainerError) or not is_out_of_memory(err):
        return err
    return DeviceMemoryError(
        f"out of memory on {run.group.device} at step {run.progress.step}",
        why=first_line(err),
        fix=f"use a smaller global batch than --set batch_size={run.plan.batch_size}, or more processes",
    )


def describe_best(run: Run) -> str:
    """Describe the best epoch so far and its metric."""
    if run.progress.best is None:
        return "not validated"
    best = render_metric(f"val_{run.workload.best}", run.progress.best)
    return f"best {best} (epoch {run.progress.best_epoch})"
