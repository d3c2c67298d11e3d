"""What to change after a failed attempt of a step, so that the next attempt can succeed."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from trainer.base.errors import DeviceMemoryError, GroupMemoryError, first_line
from trainer.base.memory import MicroBatchFile, is_out_of_memory
from trainer.group.distributed import ProcessGroup
from trainer.step.batch import halve_micro_batch
from trainer.step.compiling import Compiler, is_compiler_error
from trainer.step.precision import explain_nondeterminism

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Halves the micro-batch when memory runs out, and gives up compiling when the compiler fails."""

    group: ProcessGroup
    micro_batch: int
    micro_batch_file: MicroBatchFile
    compiler: Compiler
    say: Callable[[str], None]
    may_halve: bool = True

    def plan(self, err: Exception, *, can_repeat: bool) -> Callable[[], None] | None:
        """Return what to do before a retry; None if nothing helps.

        Args:
            err: why the attempt failed.
            can_repeat: whether this process may repeat the attempt: not if others may be waiting in a collective of it.

        Raises:
            DeviceMemoryError: memory ran out and the micro-batch can't be halved any more.
            GroupMemoryError: memory ran out during a collective: the group has to restart with a smaller micro-batch.
            TrainerError: an operation has no deterministic implementation, and the settings ask for one.
        """
        if is_out_of_memory(err):
            return self._plan_for_memory(err, can_repeat=can_repeat)
        if is_compiler_error(err) and self.compiler.is_on and can_repeat:
            return self._give_up_compiling
        if explained := explain_nondeterminism(err):
            raise explained from err
        return None

    def _plan_for_memory(self, err: Exception, *, can_repeat: bool) -> Callable[[], None]:
        smaller = halve_micro_batch(self.micro_batch) if self.may_halve else None
        if smaller is None:
            raise DeviceMemoryError(
                f"out of memory on {self.group.device} with a micro-batch of {self.micro_batch}",
                why=first_line(err),
                fix="use a smaller model, --set compute.gradient_checkpointing=true, or a device with more memory",
            ) from err
        if not can_repeat:
            self.micro_batch_file.write(smaller)
            raise GroupMemoryError(
                f"out of memory on {self.group.device} in a pass that cannot be repeated",
                why=first_line(err),
                fix=f"start again, as torchrun --max-restarts does: the next start uses micro_batch={smaller}",
            ) from err
        return partial(self._use_micro_batch, smaller)

    def _use_micro_batch(self, size: int) -> None:
        ratio = self.micro_batch // size
        self.micro_batch = size
        if self.group.device.type == "cuda":
            torch.cuda.empty_cache()
        self._report(f"out of memory: micro-batch {size * ratio} -> {size}, accumulation x {ratio}, same global batch")

    def _give_up_compiling(self) -> None:
        self.compiler.give_up()
        self._report("torch.compile failed: continuing without it")

    def _report(self, line: str) -> None:
        """Print a line on the main process, log it as a warning on the others."""
        if self.group.is_main:
            self.say(line)
        else:
            logger.warning("rank %d: %s", self.group.rank, line)
