"""A place in a training, and the same place in batches of another size. Pure."""

from dataclasses import dataclass

from trainer.step.batch import BatchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Whole epochs that are done, steps of the next one, and samples of it that will be seen twice."""

    epoch: int
    step_in_epoch: int
    repeated: int = 0

    def step(self, plan: BatchPlan) -> int:
        """Count the steps of the whole run up to here, in batches of the plan.

        Schedules are functions of this number and of the run's total, so they go on at the same share of the run.
        """
        return self.epoch * plan.steps_per_epoch + self.step_in_epoch


def convert_position(*, epoch: int, step_in_epoch: int, batch_size: int, plan: BatchPlan, samples: int) -> Position:
    """Convert a position to batches of another size, without skipping a sample.

    Args:
        epoch: counted from 0.
        step_in_epoch: steps of this epoch that are done.
        batch_size: of these steps.
        plan: the batch from now on.
        samples: training samples of an epoch.
    """
    if step_in_epoch >= samples // batch_size:  # an epoch that is trained, but not validated
        return Position(epoch=epoch, step_in_epoch=plan.steps_per_epoch)
    done = step_in_epoch * batch_size
    steps = min(done // plan.batch_size, plan.steps_per_epoch)
    return Position(epoch=epoch, step_in_epoch=steps, repeated=max(0, done - steps * plan.batch_size))
