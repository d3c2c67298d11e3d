"""Finding and reading checkpoints: from one file, or from the shards of any number of processes.

All processes read together. Of shards each needs its own rows only, reads them from its own disk where they are there,
and is sent the rest: machines needn't share a disk, and a process may have another number than before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from trainer.checkpoints.document import read_flat
from trainer.checkpoints.header import read_header
from trainer.checkpoints.shards import Shard, chunk_rows, read_index
from trainer.checkpoints.store import CheckpointStore, load_checkpoint, sort_rated
from trainer.checkpoints.tree import Flat, Slice, State, unflatten
from trainer.distributed import World
from trainer.errors import DamagedCheckpointError, IncompleteCheckpointError, first_line

Say = Callable[[str], None]
Want = Callable[[int], range]
"""Tells which rows a process wants of a tensor that has so many."""
_NOTHING = Flat(plain=None, tensors={})


def all_rows(total: int) -> range:
    """Want the whole of every tensor."""
    return range(total)


def load_newest(store: CheckpointStore, world: World, say: Say, *, want: Want = all_rows) -> State | None:
    """Load the newest checkpoint that is sound; newer ones are set aside as NAME.damaged, and said. Collective.

    Tensors that lie in shards come as `Slice`, unless all of their rows are wanted.

    Raises:
        IncompleteCheckpointError: there is none whose shards are all on these machines, but one that has others
            elsewhere; nothing was renamed.
    """
    failures: dict[str, DamagedCheckpointError] = {}
    state = None
    for name in _list_names(store, world):
        try:
            state = load(store.folder / name, world, want=want)
            break
        except DamagedCheckpointError as err:
            failures[name] = err
    incomplete = next((each for each in failures.values() if isinstance(each, IncompleteCheckpointError)), None)
    if state is None and incomplete:
        raise incomplete
    for name, failure in failures.items():
        store.set_aside(name)
        say(f"{failure.what} ({failure.why}): set aside")
    if state is None and failures:
        say("no earlier checkpoint is left: starting from the beginning")
    return state


def load_best(store: CheckpointStore, world: World, say: Say, *, want: Want = all_rows) -> State | None:
    """Load the best weights that are sound; None where there are none, and said why. Collective."""
    rated = dict(chain.from_iterable(world.gather(list(store.rate_best().items()))))
    for name in sort_rated(rated):
        try:
            return load(store.folder / name, world, want=want)
        except DamagedCheckpointError as err:
            say(f"{err.what} ({err.why})")
    for name in sorted(set(chain.from_iterable(world.gather(store.list_unusable_best())))):
        say(f"{name} is not used: its header is damaged, or it is of another configuration")
    return None


def load(path: Path, world: World, *, want: Want = all_rows) -> State:
    """Load one checkpoint onto the CPU, checksums verified, no code executed. Collective.

    Raises:
        DamagedCheckpointError: missing, cut short, altered, or not one of ours; on all processes alike.
        IncompleteCheckpointError: some of its shards are on no process's disk.
    """
    seen = world.gather(_look(path))
    holders = [rank for rank, kind in enumerate(seen) if kind is not None]
    if not holders:
        raise _damaged(path, "it is gone")
    if _FOLDER in seen:
        return _join_shards(path, world, want)
    if all(kind == seen[0] for kind in seen):
        return world.each(lambda: load_checkpoint(path))  # one shared disk: nobody is sent a copy
    return world.from_rank(holders[0], lambda: load_checkpoint(path))


def _list_names(store: CheckpointStore, world: World) -> list[str]:
    """List the step checkpoints that any process sees, newest first."""
    names = set(chain.from_iterable(world.gather([path.name for path in store.list_steps()])))
    return sorted(names, key=lambda name: (int(Path(name).stem.removeprefix("step-")), name), reverse=True)


_FOLDER = (-1, -1)


def _look(path: Path) -> tuple[int, int] | None:
    """Tell what a process sees there: a folder, a file with its size and its header's checksum, or nothing."""
    if path.is_dir():
        return _FOLDER
    try:
        size = path.stat().st_size
    except OSError:
        return None
    try:
        return size, read_header(path).checksum
    except (OSError, ValueError):
        return size, -1


def _join_shards(path: Path, world: World, want: Want) -> State:
    holdings = _Holdings(path, world)
    first = holdings.fetch(0)
    joined = world.each(lambda: _start_joining(path, first, holdings.count, want))
    for number in range(holdings.count):
        flat = holdings.fetch(number, is_wanted=joined.wants(number)) if number else first
        world.each(partial(joined.add, number, flat))
    return world.each(joined.state)


class _Holdings:
    """The shards of one checkpoint, and who has them."""

    def __init__(self, path: Path, world: World) -> None:
        self._path = path
        self._world = world
        indices = list(dict.fromkeys(shards for shards in world.gather(_read_shards(path)) if shards))
        if not indices:
            raise _damaged(path, "its index makes no sense")
        # Disks may differ where the last save was cut short: one has the old index still.
        held = [world.gather([shard.is_in(path) for shard in shards]) for shards in indices]
        whole = [all(map(any, zip(*each, strict=True))) for each in held]
        chosen = whole.index(True) if True in whole else 0
        self._shards, self._held = indices[chosen], held[chosen]
        self.count = len(self._shards)
        if not whole[chosen]:
            self._refuse()

    def fetch(self, number: int, *, is_wanted: bool = True) -> Flat:
        """Get one shard, from here or from another process; an empty one where it isn't wanted. Collective."""
        rank = self._world.rank
        owner = next(other for other, held in enumerate(self._held) if held[number])
        is_here = self._held[rank][number]
        is_sent = any(self._world.gather(is_wanted and not is_here))
        reads = is_here and (is_wanted or (is_sent and rank == owner))
        flat = self._world.each(lambda: self._read(number) if reads else _NOTHING)
        sent = self._world.from_rank(owner, lambda: flat) if is_sent else _NOTHING
        if not is_wanted:
            return _NOTHING
        return flat if is_here else sent

    def _read(self, number: int) -> Flat:
        try:
            return read_flat(self._path / self._shards[number].file)
        except (OSError, ValueError) as err:
            raise _damaged(self._path, f"shard {number} of {self.count}: {first_line(err)}") from err

    def _refuse(self) -> None:
        """Say which shard no process has, or that all of them have is damaged."""
        seen = self._world.gather([(self._path / shard.file).exists() for shard in self._shards])
        for number, found in enumerate(map(any, zip(*seen, strict=True))):
            if not found:
                raise IncompleteCheckpointError(
                    f"{self._path.name} is not whole",
                    why=f"shard {number} of {self.count} is on none of these machines",
                    fix=f"bring {self._path.name}/{self._shards[number].file} into the checkpoint folder, or start "
                    "anew with another --output-dir and --checkpoint-dir",
                )
        raise _damaged(self._path, "one of its shards is damaged")


@dataclass(slots=True, kw_only=True)
class _Joined:
    """The rows that this process wants, as far as they have been found."""

    path: Path
    first: Flat
    shards: int
    wanted: dict[str, range]
    tensors: dict[str, torch.Tensor]

    def wants(self, number: int) -> bool:
        """Tell whether a shard has rows for this process."""
        return any(_overlap(self._held(name, number), wanted) for name, wanted in self.wanted.items())

    def add(self, number: int, flat: Flat) -> None:
        """Take the rows that are wanted from a shard.

        Raises:
            DamagedCheckpointError: it isn't what it has to be beside the first one.
        """
        for name, wanted in self.wanted.items():
            held, room = self._held(name, number), self.tensors[name]
            both = _overlap(held, wanted)
            if not both:
                continue
            piece, rows = flat.tensors.get(name), flat.rows.get(name)
            if piece is None or rows != (held.start, self.first.rows[name][1]) or not _fits(piece, len(held), room):
                raise _damaged(self.path, f"shard {number} of {self.shards} lacks its rows of {name}")
            found = piece[both.start - held.start : both.stop - held.start]
            room[both.start - wanted.start : both.stop - wanted.start] = found

    def state(self) -> State:
        """Put the state together, once all shards that are wanted were added.

        Raises:
            DamagedCheckpointError: it is none.
        """
        slices = {name: self._slice(name) for name in self.first.rows}
        try:
            state = unflatten(self.first.plain, {**self.first.tensors, **slices})
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as err:
            raise _damaged(self.path, f"its state makes no sense: {type(err).__name__} {err}") from err
        if not isinstance(state, dict):
            raise _damaged(self.path, "it holds no state")
        return state

    def _held(self, name: str, number: int) -> range:
        return chunk_rows(self.first.rows[name][1], number, self.shards)

    def _slice(self, name: str) -> torch.Tensor | Slice:
        total, wanted, tensor = self.first.rows[name][1], self.wanted[name], self.tensors[name]
        return tensor if len(wanted) == total else Slice(tensor=tensor, begin=wanted.start, total=total)


def _start_joining(path: Path, first: Flat, shards: int, want: Want) -> _Joined:
    """Make room for the rows that this process wants, once the first shard is seen to tell the truth about them."""
    for name, (begin, total) in first.rows.items():
        held = chunk_rows(total, 0, shards)
        if begin != 0 or held.stop != first.tensors[name].shape[0]:
            raise _damaged(path, f"shard 0 of {shards} lacks its rows of {name}")
    wanted = {name: want(total) for name, (_, total) in first.rows.items()}
    rooms = {name: _make_room(first.tensors[name], len(wanted[name])) for name in first.rows}
    return _Joined(path=path, first=first, shards=shards, wanted=wanted, tensors=rooms)


def _make_room(like: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.empty((rows, *like.shape[1:]), dtype=like.dtype)


def _fits(piece: torch.Tensor, rows: int, room: torch.Tensor) -> bool:
    return piece.shape == (rows, *room.shape[1:]) and piece.dtype == room.dtype


def _overlap(one: range, other: range) -> range:
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))


def _read_shards(path: Path) -> tuple[Shard, ...] | None:
    try:
        return read_index(path).shards
    except (OSError, ValueError):
        return None


def _damaged(path: Path, why: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"{path.name} does not load", why=why, fix="an earlier checkpoint is used instead")
