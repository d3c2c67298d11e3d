"""Finds and loads checkpoints: from one file, or from the shards of any number of processes (resharding).

Loading is collective. A process needs only its own rows of a sharded checkpoint: it reads the shards that are on its
own disk, and receives the others from its peers. So machines need no shared disk, and ranks may have changed.

Of the processes that see the same file on one machine, the first reads and verifies it. The others take what they need
from the page cache: a file comes from the disk once, and its checksum is computed once, by machine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from trainer.base.errors import BadRequestError, DamagedCheckpointError, IncompleteCheckpointError, first_line
from trainer.checkpoints.document import map_document, map_flat, read_document, read_flat, read_verified_document
from trainer.checkpoints.header import read_header
from trainer.checkpoints.nodes import Place, find_place, is_first
from trainer.checkpoints.shards import Shard, chunk_rows, read_index
from trainer.checkpoints.store import CheckpointStore, load_checkpoint, sort_rated
from trainer.checkpoints.tree import Flat, Slice, State, unflatten
from trainer.group.distributed import ProcessGroup

Say = Callable[[str], None]
RowSelector = Callable[[int], range]
"""Selects the rows that a process wants, given a tensor's number of rows."""
_NOTHING = Flat(plain=None, tensors={})


def all_rows(total: int) -> range:
    """Select all rows of every tensor."""
    return range(total)


def load_newest(
    store: CheckpointStore, group: ProcessGroup, say: Say, *, select: RowSelector = all_rows
) -> State | None:
    """Load the newest intact checkpoint; rename newer damaged ones to NAME.damaged, and report them. Collective.

    Sharded tensors come as `Slice`, unless all of their rows are selected.

    Raises:
        IncompleteCheckpointError: no checkpoint has all of its shards on these machines, but one has shards
            elsewhere; nothing was renamed.
        BadRequestError: the newest is a file of weights alone.
    """
    failures: dict[str, DamagedCheckpointError] = {}
    state = None
    for name in _list_names(store, group):
        try:
            state = load(store.folder / name, group, select=select)
            _require_training_state(store.folder / name, state)
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


def _require_training_state(path: Path, state: State) -> None:
    """Refuse weights that somebody put among the checkpoints: they lack the optimizer and the position."""
    if "fingerprint" not in state:
        raise BadRequestError(
            f"{path.name} is no checkpoint of a run",
            why=f"it holds only: {', '.join(map(str, state)) or 'nothing'}",
            fix=f"move it out of {path.parent}; to start with its weights, add --init FILE",
        )


def load_best(store: CheckpointStore, group: ProcessGroup, say: Say, *, select: RowSelector = all_rows) -> State | None:
    """Load the best intact weights, and report damaged ones; None if there are no intact ones. Collective."""
    rated = dict(chain.from_iterable(group.all_gather(list(store.rate_best().items()))))
    for name in sort_rated(rated):
        try:
            return load(store.folder / name, group, select=select)
        except DamagedCheckpointError as err:
            say(f"{err.what} ({err.why})")
    for name in sorted(set(chain.from_iterable(group.all_gather(store.list_unusable_best())))):
        say(f"{name} is not used: its header is damaged, or it belongs to another configuration")
    return None


def load(path: Path, group: ProcessGroup, *, select: RowSelector = all_rows) -> State:
    """Load one checkpoint onto the CPU, checksums verified, no code executed. Collective.

    Raises:
        DamagedCheckpointError: missing, truncated, corrupt, or not a kedge checkpoint; raised on every process.
        IncompleteCheckpointError: some of its shards are on no process's disk.
    """
    seen = group.all_gather(_look(path))
    kinds, places = [kind for kind, _ in seen], [place for _, place in seen]
    holders = [rank for rank, kind in enumerate(kinds) if kind is not None]
    if not holders:
        raise _damaged(path, "it no longer exists")
    if _FOLDER in kinds:
        return _load_resharded(path, group, select)
    if any(kind != kinds[0] for kind in kinds):
        return group.broadcast_from(holders[0], lambda: load_checkpoint(path))
    # Nothing has to be sent. What a GPU copies need not be in memory before; on the CPU the state stays in use.
    share = map_document if group.device.type == "cuda" else read_verified_document
    read = read_document if is_first(group.rank, places) else share
    return group.call_on_every_rank(lambda: load_checkpoint(path, read=read))


def _list_names(store: CheckpointStore, group: ProcessGroup) -> list[str]:
    """List the step checkpoints that any process sees, newest first."""
    names = set(chain.from_iterable(group.all_gather([path.name for path in store.list_steps()])))
    return sorted(names, key=lambda name: (int(Path(name).stem.removeprefix("step-")), name), reverse=True)


_FOLDER = (-1, -1)


def _look(path: Path) -> tuple[tuple[int, int] | None, Place | None]:
    """Return what a process sees at a path, and where that is.

    What it sees is a file's size and header checksum, a marker for a folder, or None.
    """
    place = find_place(path)
    if path.is_dir():
        return _FOLDER, place
    try:
        size = path.stat().st_size
    except OSError:
        return None, place
    try:
        return (size, read_header(path).checksum), place
    except (OSError, ValueError):
        return (size, -1), place


def _load_resharded(path: Path, group: ProcessGroup, select: RowSelector) -> State:
    holders = _ShardHolders(path, group)
    first = holders.fetch(0)
    resharded = group.call_on_every_rank(lambda: _start_resharding(path, first, holders.count, select))
    for number in range(holders.count):
        flat = holders.fetch(number, is_wanted=resharded.needs(number)) if number else first
        group.call_on_every_rank(partial(resharded.add, number, flat))
    return group.call_on_every_rank(resharded.state)


class _ShardHolders:
    """The shards of one checkpoint, and which processes have them on disk."""

    def __init__(self, path: Path, group: ProcessGroup) -> None:
        self._path = path
        self._group = group
        self._places = group.all_gather(find_place(path))
        indices = list(dict.fromkeys(shards for shards in group.all_gather(_read_shards(path)) if shards))
        if not indices:
            raise _damaged(path, "its index is invalid")
        # Disks may differ if the last save was interrupted: one may still have the old index.
        held = [group.all_gather([shard.is_in(path) for shard in shards]) for shards in indices]
        whole = [all(map(any, zip(*each, strict=True))) for each in held]
        chosen = whole.index(True) if True in whole else 0
        self._shards, self._held = indices[chosen], held[chosen]
        self.count = len(self._shards)
        if not whole[chosen]:
            self._refuse()

    def fetch(self, number: int, *, is_wanted: bool = True) -> Flat:
        """Get one shard from this disk or from a peer; an empty one if it isn't wanted. Collective.

        Its tensors may be views of the file: copy them.
        """
        rank, held = self._group.rank, [each[number] for each in self._held]
        owner, wanted = held.index(True), self._group.all_gather(is_wanted)
        is_sent = any(wants and not has for wants, has in zip(wanted, held, strict=True))
        readers = [other for other, has in enumerate(held) if has and (wanted[other] or (is_sent and other == owner))]
        flat = self._group.call_on_every_rank(lambda: self._read(number, readers) if rank in readers else _NOTHING)
        sent = self._group.broadcast_from(owner, lambda: flat) if is_sent else _NOTHING
        if not is_wanted:
            return _NOTHING
        return flat if held[rank] else sent

    def _read(self, number: int, readers: list[int]) -> Flat:
        is_verifier = is_first(readers.index(self._group.rank), [self._places[reader] for reader in readers])
        try:
            return (read_flat if is_verifier else map_flat)(self._path / self._shards[number].file)
        except (OSError, ValueError) as err:
            raise _damaged(self._path, f"shard {number} of {self.count}: {first_line(err)}") from err

    def _refuse(self) -> None:
        """Raise for the shard that no process has, or of which every copy is damaged."""
        seen = self._group.all_gather([(self._path / shard.file).exists() for shard in self._shards])
        for number, found in enumerate(map(any, zip(*seen, strict=True))):
            if not found:
                raise IncompleteCheckpointError(
                    f"{self._path.name} is incomplete",
                    why=f"shard {number} of {self.count} is on none of these machines",
                    fix=f"copy {self._path.name}/{self._shards[number].file} into the checkpoint folder, or start "
                    "from the beginning with another --output-dir and --checkpoint-dir",
                )
        raise _damaged(self._path, "one of its shards is damaged")


@dataclass(slots=True, kw_only=True)
class _ReshardedState:
    """The rows that this process wants, filled in shard by shard."""

    path: Path
    first: Flat
    shards: int
    wanted: dict[str, range]
    tensors: dict[str, torch.Tensor]

    def needs(self, number: int) -> bool:
        """Whether a shard has rows for this process."""
        return any(_overlap(self._held(name, number), wanted) for name, wanted in self.wanted.items())

    def add(self, number: int, flat: Flat) -> None:
        """Copy the wanted rows out of a shard.

        Raises:
            DamagedCheckpointError: the shard doesn't match the first one.
        """
        for name, wanted in self.wanted.items():
            held, buffer = self._held(name, number), self.tensors[name]
            both = _overlap(held, wanted)
            if not both:
                continue
            piece, rows = flat.tensors.get(name), flat.rows.get(name)
            if piece is None or rows != (held.start, self.first.rows[name][1]) or not _fits(piece, len(held), buffer):
                raise _damaged(self.path, f"shard {number} of {self.shards} lacks its rows of {name}")
            found = piece[both.start - held.start : both.stop - held.start]
            buffer[both.start - wanted.start : both.stop - wanted.start] = found

    def state(self) -> State:
        """Join the state after all wanted shards were added.

        Raises:
            DamagedCheckpointError: the result isn't a valid state.
        """
        whole = {name: tensor.clone() for name, tensor in self.first.tensors.items() if name not in self.first.rows}
        slices = {name: self._slice(name) for name in self.first.rows}
        try:
            state = unflatten(self.first.plain, {**whole, **slices})
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as err:
            raise _damaged(self.path, f"its state is invalid: {type(err).__name__} {err}") from err
        if not isinstance(state, dict):
            raise _damaged(self.path, "it holds no state")
        return state

    def _held(self, name: str, number: int) -> range:
        return chunk_rows(self.first.rows[name][1], number, self.shards)

    def _slice(self, name: str) -> torch.Tensor | Slice:
        total, wanted, tensor = self.first.rows[name][1], self.wanted[name], self.tensors[name]
        return tensor if len(wanted) == total else Slice(tensor=tensor, begin=wanted.start, total=total)


def _start_resharding(path: Path, first: Flat, shards: int, select: RowSelector) -> _ReshardedState:
    """Allocate buffers for the rows that this process wants, after checking the first shard's row counts."""
    for name, (begin, total) in first.rows.items():
        held = chunk_rows(total, 0, shards)
        if begin != 0 or held.stop != first.tensors[name].shape[0]:
            raise _damaged(path, f"shard 0 of {shards} lacks its rows of {name}")
    wanted = {name: select(total) for name, (_, total) in first.rows.items()}
    buffers = {name: _allocate(first.tensors[name], len(wanted[name])) for name in first.rows}
    return _ReshardedState(path=path, first=first, shards=shards, wanted=wanted, tensors=buffers)


def _allocate(like: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.empty((rows, *like.shape[1:]), dtype=like.dtype)


def _fits(piece: torch.Tensor, rows: int, buffer: torch.Tensor) -> bool:
    return piece.shape == (rows, *buffer.shape[1:]) and piece.dtype == buffer.dtype


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
