"""The global batch, split over processes. Pure."""

from dataclasses import dataclass

from trainer.errors import BadRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """How many samples go where. `per_device * world_size == batch_size`."""

    batch_size: int
    per_device: int
    world_size: int
    steps_per_epoch: int
    epochs: int

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.steps_per_epoch * self.epochs


def plan_batch(*, batch_size: int, world_size: int, samples: int, epochs: int) -> BatchPlan:
    """Split a global batch evenly over the processes; an epoch's incomplete last batch is dropped.

    Raises:
        BadRequestError: the batch doesn't divide, or would train zero steps; the nearest valid
            batches are named.
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
    return BatchPlan(
        batch_size=batch_size,
        per_device=batch_size // world_size,
        world_size=world_size,
        steps_per_epoch=samples // batch_size,
        epochs=epochs,
    )


def nearest_batches(batch_size: int, world_size: int, samples: int) -> list[int]:
    """List the valid global batches just below and above the one asked for; empty if there is none."""
    largest = samples // world_size * world_size
    below = min(batch_size // world_size * world_size, largest)
    above = min(below + world_size, largest)
    return sorted({batch for batch in (below, above) if batch > 0})


def _fix(batch_size: int, world_size: int, samples: int) -> str:
    batches = nearest_batches(batch_size, world_size, samples)
    if not batches:
        return f"use at most {samples} processes: there are only {samples} training samples"
    return "use " + " or ".join(f"--set batch_size={batch}" for batch in batches)
