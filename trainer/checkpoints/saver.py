"""Checkpoints beside the training: the loop waits for a copy in memory, a thread does the rest.

At most one is being written. A save that comes meanwhile waits for it: nothing that was asked for is left out.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch

from trainer.checkpoints.staging import Copies, Staging, measure_need
from trainer.checkpoints.store import CheckpointStore, Rating
from trainer.checkpoints.tree import Flat, State, flatten
from trainer.errors import CheckpointWriteError, TrainerError, first_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one save keeps.

    `state` is the whole run after `step` steps. `best` are its weights where they were just rated; they are written
    first, because the state says that they exist. `before` makes durable what the state counts on, on the
    writer's thread.
    """

    step: int
    state: State
    best: State | None = None
    rating: Rating | None = None
    before: Callable[[], object] = lambda: None


class Saver:
    """Writes one run's snapshots. Its methods are called by one thread."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._staging = Staging()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self.is_reserved = False
        self.seconds = 0.0
        """How long a save takes from its beginning until it is durable; 0 before the first."""

    def reserve(self, state: State) -> None:
        """Have the memory for such a state made ready in the background."""
        self.wait()
        self.is_reserved = True
        self._pending = self._writer.submit(self._staging.reserve, measure_need(flatten(state).tensors.values()))

    def save(self, snapshot: Snapshot) -> None:
        """Copy a snapshot; it is being written when this returns.

        Raises:
            CheckpointWriteError: the one before could not be written.
        """
        self.wait()
        began = time.perf_counter()
        flats = [flatten(snapshot.state)] + ([flatten(snapshot.best)] if snapshot.best else [])
        # Tensors that both have are copied once.
        copies = self._staging.copy({id(tensor): tensor for flat in flats for tensor in flat.tensors.values()})
        staged = [_staged(flat, copies) for flat in flats]
        self._pending = self._writer.submit(self._write, snapshot, staged, copies, began)

    @property
    def is_busy(self) -> bool:
        """Whether something is being written."""
        return self._pending is not None and not self._pending.done()

    def check(self) -> None:
        """Meet what the writer met; doesn't wait.

        Raises:
            CheckpointWriteError: a snapshot could not be written.
        """
        if not self.is_busy:
            self.wait()

    def wait(self) -> None:
        """Wait until what was saved is durable.

        Raises:
            CheckpointWriteError: it could not be written.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Finish what is being written, and end the thread; what fails here is left to the checkpoint before."""
        self._store.leave_soon()
        self._writer.shutdown()

    def _write(self, snapshot: Snapshot, staged: list[Flat], copies: Copies, began: float) -> None:
        try:
            self._write_all(snapshot, staged, copies)
        except Exception as err:
            self._store.fail(err.why if isinstance(err, TrainerError) else first_line(err))
            raise
        # Slowly forgotten: the next one may be as slow as the slowest of late.
        self.seconds = max(time.perf_counter() - began, 0.5 * self.seconds)

    def _write_all(self, snapshot: Snapshot, staged: list[Flat], copies: Copies) -> None:
        copies.wait()
        try:
            snapshot.before()
        except OSError as err:
            raise CheckpointWriteError(
                f"the checkpoint of step {snapshot.step} could not be written",
                why=first_line(err),
                fix="make room where the results are, or choose another folder with --output-dir",
            ) from err
        state, *best = staged
        if best and snapshot.rating is not None:
            self._store.save_best(best[0], step=snapshot.step, rating=snapshot.rating)
        self._store.save(state, step=snapshot.step)


def _staged(flat: Flat, copies: Copies) -> Flat:
    tensors: dict[str, torch.Tensor] = {name: copies.tensors[id(tensor)] for name, tensor in flat.tensors.items()}
    return replace(flat, tensors=tensors)
