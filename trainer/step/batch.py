"""Splits the global batch over processes, and each share into micro-batches. Pure."""

from dataclasses import dataclass

from trainer.base.errors import BadRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The split of the batch: `batch_size == world_size * accumulation * micro_batch`."""

    batch_size: int
    per_device: int
    micro_batch: int
    world_size: int
    steps_per_epoch: int
    epochs: int
    max_steps: int = 0
    """The run ends after so many steps, even within an epoch; 0: after the epochs."""

    @property
    def accumulation(self) -> int:
        """Micro-batches of each process before the optimizer steps."""
        return self.per_device // self.micro_batch

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        steps = self.steps_per_epoch * self.epochs
        return min(steps, self.max_steps) if self.max_steps else steps


def plan_batch(
    *, batch_size: int, world_size: int, samples: int, epochs: int, micro_batch: int = 0, max_steps: int = 0
) -> BatchPlan:
    """Split a global batch evenly over the processes; an epoch's incomplete last batch is dropped.

    Args:
        batch_size: samples of one optimizer step, over all processes.
        world_size: processes.
        samples: training samples.
        epochs: how often each is seen.
        micro_batch: samples that a process computes at once; 0 for its whole share.
        max_steps: the most steps of the run; 0 for all of its epochs.

    Raises:
        BadRequestError: the batch or the micro-batch doesn't divide evenly, or there would be zero steps; the message
            names the nearest valid sizes.
    """
    if batch_size % world_size:
        raise BadRequestError(
            f"batch_size {batch_size} does not divide over {world_size} processes",
            why="it is the global batch, and every process gets the same share",
            fix=_fix(batch_size, world_size, samples),
        )
    if batch_size > samples:
        raise BadRequestError(
            f"batch_size {batch_size} would train zero steps",
            why=f"there are {samples} training samples, and an epoch has only whole batches",
            fix=_fix(batch_size, world_size, samples),
        )
    per_device = batch_size // world_size
    _check_micro_batch(micro_batch, per_device)
    return BatchPlan(
        batch_size=batch_size,
        per_device=per_device,
        micro_batch=micro_batch or per_device,
        world_size=world_size,
        steps_per_epoch=samples // batch_size,
        epochs=epochs,
        max_steps=max_steps,
    )


def nearest_batches(batch_size: int, world_size: int, samples: int) -> list[int]:
    """List the valid global batches just below and above the one asked for; empty if there is none."""
    largest = samples // world_size * world_size
    below = min(batch_size // world_size * world_size, largest)
    above = min(below + world_size, largest)
    return sorted({batch for batch in (below, above) if batch > 0})


def nearest_micro_batches(micro_batch: int, per_device: int) -> list[int]:
    """List the divisors of a process's share just below and above the micro-batch asked for."""
    divisors = [size for size in range(1, per_device + 1) if per_device % size == 0]
    below = [size for size in divisors if size < micro_batch]
    above = [size for size in divisors if size > micro_batch]
    return below[-1:] + above[:1]


def halve_micro_batch(micro_batch: int) -> int | None:
    """Choose the next smaller micro-batch, at most half, that still divides the share; None below one sample."""
    return next((size for size in range(micro_batch // 2, 0, -1) if micro_batch % size == 0), None)


def render_split(plan: BatchPlan) -> str:
    """Describe the split of the global batch: processes x micro-batches x samples."""
    if plan.accumulation == 1:
        return f"batch {plan.batch_size} = {plan.world_size} x {plan.per_device}"
    return f"batch {plan.batch_size} = {plan.world_size} x {plan.accumulation} accumulated x {plan.micro_batch}"


def find_batch_concern(plan: BatchPlan) -> str | None:
    """Return a warning about a valid but unwise batch; None if there is nothing to warn of."""
    if plan.micro_batch > 1:
        return None
    return (
        "1 sample at a time in each process: slow, and batch normalisation has nothing to average over; "
        f"8 per process is a good size (--set batch_size={8 * plan.world_size})"
    )


def _check_micro_batch(micro_batch: int, per_device: int) -> None:
    if micro_batch and per_device % micro_batch:
        sizes = nearest_micro_batches(micro_batch, per_device)
        raise BadRequestError(
            f"micro_batch {micro_batch} does not divide a process's share of {per_device}",
            why="every micro-batch of a step has the same size, so that their mean is the batch's",
            fix="use " + " or ".join(f"--set micro_batch={size}" for size in sizes),
        )


def _fix(batch_size: int, world_size: int, samples: int) -> str:
    batches = nearest_batches(batch_size, world_size, samples)
    if not batches:
        return f"use at most {samples} processes: there are only {samples} training samples"
    return "use " + " or ".join(f"--set batch_size={batch}" for batch in batches)
