"""What is due at a position of a run, by the settings. Pure, so that all processes and a resumed run agree on it."""

from dataclasses import dataclass

from trainer.base.config import Settings
from trainer.run.progress import Progress
from trainer.step.batch import BatchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggers:
    """Answers questions about a position between two steps."""

    settings: Settings
    steps_per_epoch: int
    total_steps: int

    def is_over(self, progress: Progress) -> bool:
        """Whether no step is left to train."""
        return progress.step >= self.total_steps or self.early_end(progress) is not None

    def early_end(self, progress: Progress) -> str | None:
        """Return why the run ends before its last step, None if it doesn't."""
        patience, record = self.settings.validate.patience, progress.record
        if not patience or record.waited < patience or progress.validated_at != progress.step:
            return None
        return f"{record.metric} has not improved in {record.waited} validations"

    def ends_epoch(self, progress: Progress) -> bool:
        """Whether the epoch's last step is done, and the epoch isn't finished yet."""
        return progress.step_in_epoch >= self.steps_per_epoch

    def is_validation_due(self, progress: Progress) -> bool:
        """Whether these weights are to be validated, and weren't yet."""
        if not progress.step or progress.validated_at == progress.step:
            return False
        validate = self.settings.validate
        is_epoch = self.ends_epoch(progress) and _divides(validate.every_epochs, progress.epoch + 1)
        return is_epoch or _divides(validate.every_steps, progress.step) or progress.step >= self.total_steps

    def is_sampling_due(self, progress: Progress) -> bool:
        """Whether samples are to be made of these weights, and weren't yet."""
        if not progress.step or progress.sampled_at == progress.step:
            return False
        return self.sampled_epoch(progress) is not None or _divides(self.settings.samples.every_steps, progress.step)

    def sampled_epoch(self, progress: Progress) -> int | None:
        """Return the epoch, counted from 1, whose samples are due at its end; None if none are."""
        epoch = progress.epoch + 1
        return epoch if self.ends_epoch(progress) and _divides(self.settings.samples.every_epochs, epoch) else None

    def is_step_save_due(self, progress: Progress) -> bool:
        """Whether to save after this step, within an epoch."""
        checkpoint = self.settings.checkpoint
        is_due = any(_divides(every, progress.step) for every in (checkpoint.every_steps, checkpoint.keep_every_steps))
        return is_due and not self.ends_epoch(progress)

    def is_epoch_save_due(self, progress: Progress) -> bool:
        """Whether to save after the epoch that was just finished."""
        return progress.step_in_epoch == 0 and _divides(self.settings.checkpoint.every_epochs, progress.epoch)

    def is_milestone(self, progress: Progress) -> bool:
        """Whether this step, or the epoch that was just finished, is to be saved and kept for good."""
        checkpoint, is_finished = self.settings.checkpoint, progress.step_in_epoch == 0
        is_epoch = is_finished and progress.epoch > 0 and _divides(checkpoint.keep_every_epochs, progress.epoch)
        return is_epoch or (progress.step > 0 and _divides(checkpoint.keep_every_steps, progress.step))

    def best_gap_steps(self) -> int:
        """Return the fewest steps between two saves of a best."""
        validate = self.settings.validate
        return max(validate.best_gap_epochs * self.steps_per_epoch, validate.best_gap_steps)


def make_triggers(settings: Settings, plan: BatchPlan) -> Triggers:
    """Make a run's triggers."""
    return Triggers(settings=settings, steps_per_epoch=plan.steps_per_epoch, total_steps=plan.total_steps)


def _divides(every: int, number: int) -> bool:
    return every > 0 and number % every == 0
