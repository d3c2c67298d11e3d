"""Asynchronous checkpoints: the training loop waits only for a copy in memory, a thread writes it.

At most one checkpoint is being written. A save that comes meanwhile waits for it: no save is dropped.
"""

import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import torch

from trainer.base.errors import CheckpointWriteError, TrainerError, first_line
from trainer.checkpoints.staging import Copies, Staging, measure_staging_size
from trainer.checkpoints.store import CheckpointStore, Rating
from trainer.checkpoints.tree import Flat, State, flatten, storage_key

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSnapshot:
    """What one save writes.

    `state` is the whole run after `step` steps. `best` are its weights if a validation has just rated them; they are
    written first, because the state refers to them. `before_write` runs first on the writer's thread, and makes other
    files durable that the state relies on. A milestone is never pruned.
    """

    step: int
    state: State
    is_milestone: bool = False
    best: State | None = None
    rating: Rating | None = None
    before_write: Callable[[], object] = lambda: None


class Saver:
    """Writes one run's snapshots. Call its methods from one thread only."""

    def __init__(
        self,
        store: CheckpointStore,
        *,
        device: torch.device = _CPU,
        staging: Staging | None = None,
        use_device: Callable[[torch.device], object] = torch.cuda.set_device,
    ) -> None:
        """Start the writer thread.

        Args:
            store: the folder that it writes to.
            device: the device of the tensors to come. A new thread would use the first GPU, whichever this process's
                is, to pin memory and to wait for copies.
            staging: the memory for the copies.
            use_device: makes a GPU the calling thread's.
        """
        self._store = store
        self._staging = staging or Staging()
        self._writer = ThreadPoolExecutor(
            max_workers=1,
            thread_name_prefix="checkpoint",
            initializer=partial(use_device, device) if device.type == "cuda" else None,
        )
        self._pending: Future[None] | None = None
        self.is_reserved = False
        self.seconds = 0.0
        """Seconds from the start of a save until it is durable; 0 before the first save."""

    def reserve(self, state: State, *, best: State | None = None) -> None:
        """Allocate the staging memory for such a state, and for such best weights, in the background."""
        self.wait()
        self.is_reserved = True
        need = measure_staging_size(_merge(_flatten_all(state, best)).values())
        self._pending = self._writer.submit(self._staging.reserve, need)

    def save(self, snapshot: TrainingSnapshot) -> None:
        """Copy a snapshot and start to write it.

        Raises:
            CheckpointWriteError: the previous snapshot could not be written.
        """
        self.wait()
        began = time.perf_counter()
        flats = _flatten_all(snapshot.state, snapshot.best)
        tensors = _merge(flats)
        need = measure_staging_size(tensors.values())
        if not self._staging.has_room(need):
            self._writer.submit(self._staging.reserve, need).result()
        copies = self._staging.copy(tensors)
        staged = [_staged(flat, copies) for flat in flats]
        self._pending = self._writer.submit(self._write, snapshot, staged, copies, began)

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is being written."""
        return self._pending is not None and not self._pending.done()

    def check(self) -> None:
        """Raise the writer's error, if any, without waiting.

        Raises:
            CheckpointWriteError: a snapshot could not be written.
        """
        if not self.is_busy:
            self.wait()

    def wait(self) -> None:
        """Wait until the last snapshot is durable.

        Raises:
            CheckpointWriteError: it could not be written.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Finish writing and end the thread; a failure is ignored, because the previous checkpoint is intact."""
        self._store.shorten_waits()
        self._writer.shutdown()
        self._staging.close()

    def _write(self, snapshot: TrainingSnapshot, staged: list[Flat], copies: Copies, began: float) -> None:
        try:
            self._write_all(snapshot, staged, copies)
        except Exception as err:
            self._store.fail(err.why if isinstance(err, TrainerError) else first_line(err))
            raise
        # The maximum decays slowly: the next save may be as slow as the slowest recent one.
        self.seconds = max(time.perf_counter() - began, 0.5 * self.seconds)

    def _write_all(self, snapshot: TrainingSnapshot, staged: list[Flat], copies: Copies) -> None:
        copies.wait()
        try:
            snapshot.before_write()
        except OSError as err:
            raise CheckpointWriteError(
                f"the checkpoint of step {snapshot.step} could not be written",
                why=first_line(err),
                fix="make room where the results are, or choose another folder with --output-dir",
            ) from err
        state, *best = staged
        if best and snapshot.rating is not None:
            self._store.save_best(best[0], step=snapshot.step, rating=snapshot.rating)
        self._store.save(state, step=snapshot.step, is_milestone=snapshot.is_milestone)


def _flatten_all(state: State, best: State | None) -> list[Flat]:
    return [flatten(one) for one in (state, best) if one is not None]


def _merge(flats: list[Flat]) -> dict[Hashable, torch.Tensor]:
    """Collect the tensors of several states; memory that several of them have is copied once."""
    return {storage_key(tensor): tensor for flat in flats for tensor in flat.tensors.values()}


def _staged(flat: Flat, copies: Copies) -> Flat:
    return replace(flat, tensors={name: copies.tensors[storage_key(tensor)] for name, tensor in flat.tensors.items()})
