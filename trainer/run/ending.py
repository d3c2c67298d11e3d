"""How a run ends: its outputs, its last status, and what it says."""

import logging
import time

from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in its __all__

from trainer.base.contract import RunContract
from trainer.base.errors import DeviceMemoryError, TrainerError, first_line
from trainer.base.memory import is_out_of_memory
from trainer.base.signals import StopFlag
from trainer.report.console import render_metric
from trainer.run.outputs import SelectedWeights, write_outputs
from trainer.run.run import Run
from trainer.step.precision import explain_nondeterminism

logger = logging.getLogger(__name__)
_OUTPUTS_KEY = "outputs are written"
_SECONDS_BETWEEN_LOOKS = 0.2


def finish_together(run: Run, selected: SelectedWeights | None, contract: RunContract, stop: StopFlag) -> None:
    """Write the outputs on the main process, while the others wait for it. Collective.

    Else torchrun on the other machines would end: it waits five minutes for the main process at most, and a machine
    whose processes are gone may be deleted.

    Raises:
        TrainerError: an output could not be made; raised on the main process.
    """
    store = run.group.store
    if selected is None:
        if store is not None:
            wait_for_outputs(store, stop)
        return
    try:
        finish(run, selected, contract)
    finally:
        if store is not None:
            announce_outputs(store)


def announce_outputs(store: Store) -> None:
    """Tell the waiting processes that the main process is done, or has failed."""
    store.set(_OUTPUTS_KEY, "1")


def wait_for_outputs(store: Store, stop: StopFlag) -> None:
    """Wait until the main process is done, however long that takes, or until this process is told to stop.

    A main process that dies takes the store with it, or makes torchrun stop the others.
    """
    while not stop.reason:
        try:
            if store.check([_OUTPUTS_KEY]):
                return
        except RuntimeError as err:
            logger.info("the main process is gone: %s", first_line(err))
            return
        time.sleep(_SECONDS_BETWEEN_LOOKS)


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
    """Record that the run failed, and why; a full disk doesn't hide the failure itself."""
    if not run.group.is_main:
        return
    try:
        run.report.status_file.write("failed", run.status(), error=first_line(failure))
    except TrainerError as err:
        run.console.say(f"{err.what}: {err.why}")


def explain(err: Exception, run: Run) -> Exception:
    """Turn an error with a known cause into a TrainerError; return any other one unchanged."""
    if isinstance(err, TrainerError) or not is_out_of_memory(err):
        return explain_nondeterminism(err) or err
    return DeviceMemoryError(
        f"out of memory on {run.group.device} at step {run.progress.step}",
        why=first_line(err),
        fix=f"use a smaller global batch than --set batch_size={run.plan.batch_size}, or more processes",
    )


def describe_best(run: Run) -> str:
    """Describe the best result so far, whether its weights were saved, and an early end."""
    record, ended = run.progress.record, run.spec.triggers.early_end(run.progress)
    if record.value is None:
        return "not validated"
    best = f"best {render_metric(record.metric or run.spec.best.name, record.value)} (epoch {record.epoch})"
    if record.saved_value is not None and not record.is_saved:
        saved = render_metric(record.metric, record.saved_value)
        best += f", not saved because of validate.best_gap_*: {saved} of epoch {record.saved_epoch} was"
    return f"{best}, ended early: {ended}" if ended else best
