"""Reads one process's share of a stream in batches, and knows the position after each of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from trainer.base.errors import BadRequestError, TrainerError
from trainer.base.sources import Batch, Sample, SampleStream, StreamSource
from trainer.data.seeded import restored_together

_KEYS = {"epoch", "samples", "number", "position", "rank", "world_size"}


class MakeBatch(Protocol):
    """Makes the batch of one step of an epoch."""

    def __call__(self, samples: list[Sample], *, epoch: int, step: int) -> Batch:
        """Make it of its samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStart:
    """Where to begin: at a saved position of pass `number` of an epoch, or after `skip` samples of its beginning."""

    epoch: int
    number: int = 0
    position: dict[str, Any] | None = None
    skip: int = 0


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The next `samples` of a stream, for a step of its epoch. With `start` it is opened there first."""

    samples: int
    step: int
    start: StreamStart | None = None


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch, and the position after it."""

    batch: Batch
    number: int
    position: dict[str, Any]


class StreamReader:
    """Answers requests one after another; it keeps the stream open in between, so one process answers all of them."""

    def __init__(
        self,
        source: StreamSource,
        collate: MakeBatch,
        *,
        rank: int,
        world_size: int,
        seed: int,
    ) -> None:
        self._source = source
        self._collate = collate
        self._share = {"rank": rank, "world_size": world_size, "seed": seed}
        self._epoch = self._number = 0
        self._stream: SampleStream | None = None
        self._samples: Iterator[Sample] = iter(())

    def read(self, request: StreamRequest) -> StreamBatch:
        """Read a batch.

        Raises:
            TrainerError: this process's share has no samples.
        """
        if request.start:
            self._start(request.start)
        with restored_together():
            samples = [self._next() for _ in range(request.samples)]
            position = self._stream.state_dict() if self._stream else {}
            batch = self._collate(samples, epoch=self._epoch, step=request.step)
        return StreamBatch(batch, self._number, position)

    def _start(self, start: StreamStart) -> None:
        self._epoch = start.epoch
        self._open(start.number, start.position)
        for _ in range(start.skip):
            self._next()

    def _open(self, number: int, position: dict[str, Any] | None = None) -> None:
        self._number = number
        self._stream = self._source.open(epoch=self._epoch + number, **self._share)
        if position is not None:
            self._stream.load_state_dict(position)
        self._samples = iter(self._stream)

    def _next(self) -> Sample:
        for sample in self._samples:
            return sample
        self._open(self._number + 1)
        for sample in self._samples:
            return sample
        raise TrainerError(
            f"process {self._share['rank'] + 1} of {self._share['world_size']} has no samples",
            why="its share of the stream is empty",
            fix="use fewer processes, or split the data into at least as many shards as there are processes",
        )


class StreamPlace:
    """One process's place in a stream, as plain data for checkpoints."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        self._rank = rank
        self._world_size = world_size
        self._state: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        """Return the place after the last batch; empty before the first."""
        return dict(self._state)

    def load(self, state: dict[str, Any]) -> str | None:
        """Take a saved place; return what to tell the user if it isn't one of this process.

        Raises:
            BadRequestError: it isn't the state of a stream.
        """
        if state and state.keys() != _KEYS:
            raise BadRequestError(
                "the position in the training data can't be used",
                why=f"it has {', '.join(map(str, state))}",
                fix="start the epoch anew, or use the recipe that wrote it",
            )
        self._state = dict(state)
        if not state or (state["world_size"], state["rank"]) == (self._world_size, self._rank):
            return None
        return (
            f"the stream was read by {state['world_size']} processes, now {self._world_size}: each new share skips as "
            "many samples as the old ones had read, so that in this epoch a few may come twice or not at all"
        )

    def note(self, *, epoch: int, samples: int, read: StreamBatch) -> None:
        """Note the place after a batch; `samples` of the epoch are done, over all processes."""
        self._state = {
            "epoch": epoch,
            "samples": samples,
            "number": read.number,
            "position": read.position,
            "rank": self._rank,
            "world_size": self._world_size,
        }

    def find_start(self, *, epoch: int, samples: int) -> StreamStart:
        """Return where an epoch goes on after `samples` over all processes: at the noted place if that is it."""
        state = self._state
        here = {"epoch": epoch, "samples": samples, "rank": self._rank, "world_size": self._world_size}
        if not samples or {**state, **here} != state:
            return StreamStart(epoch=epoch, skip=samples // self._world_size)
        return StreamStart(epoch=epoch, number=state["number"], position=state["position"])
