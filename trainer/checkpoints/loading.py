"""Finding and reading checkpoints: from one file, or from the shards of any number of processes.

All processes read together. Of shards each needs its own rows only, reads them from its own disk where they are there,
and is sent the rest: machines needn't share a disk, and a process may have another number than before.
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from trainer.checkpoints.document import read_flat
from trainer.checkpoints.shards import Index, chunk_rows, read_index
from trainer.checkpoints.store import CheckpointStore, load_checkpoint
from trainer.checkpoints.tree import Flat, Slice, State, unflatten
from trainer.distributed import World
from trainer.errors import DamagedCheckpointError, first_line

Say = Callable[[str], None]
Rows = Callable[[int], range]
"""Tells which rows a process wants of a tensor that has so many."""


ALONE = World(rank=0, size=1, device=torch.device("cpu"))
_NOTHING = Flat(plain=None, tensors={})


def all_rows(total: int) -> range:
    """Want the whole of every tensor."""
    return range(total)


def load_newest(store: CheckpointStore, world: World, say: Say, *, rows: Rows = all_rows) -> State | None:
    """Load the newest checkpoint that is sound; a damaged one is set aside as NAME.damaged, and said. Collective.

    Tensors that lie in shards come as `Slice`, unless all of their rows are wanted.
    """
    while names := _list_names(store, world):
        try:
            return load(store.folder / names[0], world, rows=rows)
        except DamagedCheckpointError as err:
            store.set_aside(names[0])
            say(f"{err.what} ({err.why}): set aside, going back to the one before it")
    return None


def load_best(store: CheckpointStore, world: World, say: Say, *, rows: Rows = all_rows) -> State | None:
    """Load the best weights that are sound; None where there are none, and said why. Collective."""
    for path in world.from_main(store.list_best):
        try:
            return load(path, world, rows=rows)
        except DamagedCheckpointError as err:
            say(f"{err.what} ({err.why})")
    for path in world.from_main(store.list_unusable_best):
        say(f"{path.name} is damaged, or of another configuration")
    return None


def load(path: Path, world: World, *, rows: Rows = all_rows) -> State:
    """Load one checkpoint onto the CPU, checksums verified, no code executed. Collective.

    Raises:
        DamagedCheckpointError: missing, incomplete, cut short, altered, or not one of ours; on all processes alike.
    """
    holders = [rank for rank, is_here in enumerate(world.gather(path.exists())) if is_here]
    if not holders:
        raise _damaged(path, "it is gone")
    if path.suffix:
        return world.from_rank(holders[0], lambda: load_checkpoint(path))
    return _join_shards(path, world, rows)


def _list_names(store: CheckpointStore, world: World) -> list[str]:
    """List the step checkpoints that any process sees, newest first."""
    names = set(chain.from_iterable(world.gather([path.name for path in store.list_steps()])))
    return sorted(names, key=lambda name: (int(Path(name).stem.removeprefix("step-")), name), reverse=True)


def _join_shards(path: Path, world: World, rows: Rows) -> State:
    folder = _Folder(path, world)
    joined = world.each(partial(_Joined, path, folder.fetch(0), folder.shards, rows))
    for number in range(1, folder.shards):
        flat = folder.fetch(number, is_wanted=joined.wants(number))
        world.each(partial(joined.add, number, flat))
    return world.each(joined.state)


class _Folder:
    """The shards of one checkpoint, wherever they are."""

    def __init__(self, path: Path, world: World) -> None:
        self._path = path
        self._world = world
        indices = [index for index in world.gather(_read_index(path)) if index]
        if not indices:
            raise _damaged(path, "its index makes no sense")
        self._index = indices[0]
        self.shards = len(self._index.shards)
        self._holders = world.gather([self._index.is_there(path, number) for number in range(self.shards)])
        for number in range(self.shards):
            if not any(held[number] for held in self._holders):
                raise _damaged(path, f"shard {number} of {self.shards} is missing or damaged")

    def fetch(self, number: int, *, is_wanted: bool = True) -> Flat:
        """Get one shard, from here or from another process; an empty one where it isn't wanted. Collective."""
        rank = self._world.rank
        owner = next(other for other, held in enumerate(self._holders) if held[number])
        is_here = self._holders[rank][number]
        is_sent = any(self._world.gather(is_wanted and not is_here))
        reads = is_here and (is_wanted or (is_sent and rank == owner))
        flat = self._world.each(lambda: self._read(number) if reads else _NOTHING)
        sent = self._world.from_rank(owner, lambda: flat) if is_sent else _NOTHING
        if not is_wanted:
            return _NOTHING
        return flat if is_here else sent

    def _read(self, number: int) -> Flat:
        try:
            return read_flat(self._index.path(self._path, number))
        except (OSError, ValueError) as err:
            raise _damaged(self._path, f"shard {number} of {self.shards}: {first_line(err)}") from err


class _Joined:
    """The rows that this process wants, as far as they have been found."""

    def __init__(self, path: Path, first: Flat, shards: int, rows: Rows) -> None:
        self._path = path
        self._first = first
        self._shards = shards
        self._wanted = {name: rows(total) for name, (_, total) in first.rows.items()}
        self._tensors = {name: _make_room(first.tensors[name], len(self._wanted[name])) for name in first.rows}
        self.add(0, first)

    def wants(self, number: int) -> bool:
        """Tell whether a shard has rows for this process."""
        return any(_overlap(self._held(name, number), wanted) for name, wanted in self._wanted.items())

    def add(self, number: int, flat: Flat) -> None:
        """Take the rows that are wanted from a shard.

        Raises:
            DamagedCheckpointError: it isn't what it has to be beside the first one.
        """
        for name, wanted in self._wanted.items():
            held, room = self._held(name, number), self._tensors[name]
            both = _overlap(held, wanted)
            if not both:
                continue
            piece, rows = flat.tensors.get(name), flat.rows.get(name)
            if piece is None or rows != (held.start, self._first.rows[name][1]) or not _fits(piece, len(held), room):
                raise _damaged(
                    self._path, f"shard {number} of {self._shards} has not the rows of {name} that it should"
                )
            found = piece[both.start - held.start : both.stop - held.start]
            room[both.start - wanted.start : both.stop - wanted.start] = found

    def state(self) -> State:
        """Put the state together, once all shards that are wanted were added.

        Raises:
            DamagedCheckpointError: it is none.
        """
        slices = {name: self._slice(name) for name in self._first.rows}
        try:
            state = unflatten(self._first.plain, {**self._first.tensors, **slices})
        except (KeyError, TypeError, AttributeError, RecursionError) as err:
            raise _damaged(self._path, f"its state makes no sense: {type(err).__name__} {err}") from err
        if not isinstance(state, dict):
            raise _damaged(self._path, "it holds no state")
        return state

    def _held(self, name: str, number: int) -> range:
        return chunk_rows(self._first.rows[name][1], number, self._shards)

    def _slice(self, name: str) -> torch.Tensor | Slice:
        total, wanted, tensor = self._first.rows[name][1], self._wanted[name], self._tensors[name]
        return tensor if len(wanted) == total else Slice(tensor=tensor, begin=wanted.start, total=total)


def _make_room(like: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.empty((rows, *like.shape[1:]), dtype=like.dtype)


def _fits(piece: torch.Tensor, rows: int, room: torch.Tensor) -> bool:
    return piece.shape == (rows, *room.shape[1:]) and piece.dtype == room.dtype


def _overlap(one: range, other: range) -> range:
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))


def _read_index(path: Path) -> Index | None:
    try:
        return read_index(path)
    except (OSError, ValueError):
        return None


def _damaged(path: Path, why: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"{path.name} does not load", why=why, fix="an earlier checkpoint is used instead")
