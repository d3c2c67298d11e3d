"""Several processes that write shards together, as threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but not in its __all__

from tests.trainer import join_shards
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.replicas import ReplicatingPeers
from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.store import CheckpointStore, Rating
from trainer.checkpoints.tree import Slice, State, flatten

FINGERPRINT = {"recipe": "digits"}


def cut(whole: Any, rank: int, size: int) -> Any:
    """Keep one process's rows of all tensors that have rows."""
    if isinstance(whole, torch.Tensor) and whole.dim():
        rows = chunk_rows(len(whole), rank, size)
        return Slice(tensor=whole[rows.start : rows.stop], begin=rows.start, total=len(whole))
    if isinstance(whole, dict):
        return {key: cut(value, rank, size) for key, value in whole.items()}
    return whole


class Writers:
    """Several processes that write together, as threads; each with its own folder, or all with one."""

    def __init__(
        self, folders: list[Path], *, keep: int = 2, timeout_seconds: float = 30, replicas: int = 0, per_node: int = 1
    ) -> None:
        self._meeting, self._timeout, self._folders = HashStore(), timeout_seconds, folders
        nodes = [rank // per_node for rank in range(len(folders))]
        with ThreadPoolExecutor(len(folders)) as pool:  # replicating peers connect to each other
            all_peers = list(pool.map(lambda rank: self._open(rank, nodes, replicas), range(len(folders))))
        self.stores = [
            CheckpointStore(folder, keep=keep, fingerprint=FINGERPRINT, peers=peers)
            for folder, peers in zip(folders, all_peers, strict=True)
        ]
        for store in self.stores:
            store.prepare()

    def _open(self, rank: int, nodes: list[int], replicas: int) -> Peers:
        if replicas:
            return ReplicatingPeers(
                self._meeting, rank=rank, nodes=nodes, replicas=replicas, timeout_seconds=self._timeout
            )
        return Peers(
            self._meeting,
            rank=rank,
            size=len(nodes),
            is_local_main=rank == 0 or self._folders[rank] != self._folders[rank - 1],
            timeout_seconds=self._timeout,
            exit_timeout_seconds=0.2,
        )

    def each(self, act: Callable[[int, CheckpointStore], None]) -> list[BaseException | None]:
        """Run a function on all at once; return each one's error."""
        with ThreadPoolExecutor(len(self.stores)) as pool:
            return [future.exception() for future in [pool.submit(act, *item) for item in enumerate(self.stores)]]

    def save(self, step: int, state: State | None = None, *, is_milestone: bool = False) -> list[BaseException | None]:
        """Save one step on all."""
        whole, size = state or join_shards.make_state(step), len(self.stores)

        def act(rank: int, store: CheckpointStore) -> None:
            store.save(flatten(cut(whole, rank, size)), step=step, is_milestone=is_milestone)

        return self.each(act)

    def save_best(self, step: int, value: float) -> list[BaseException | None]:
        """Save weights on all."""
        rating = Rating(metric="val_accuracy", value=value, best_is="max")
        whole, size = {"rating": rating.dump(), **join_shards.make_state(step)}, len(self.stores)
        return self.each(lambda rank, store: store.save_best(flatten(cut(whole, rank, size)), step=step, rating=rating))


def shard_of(folder: Path, rank: int) -> Path:
    (path,) = folder.glob(f"{rank}-of-*.safetensors")
    return path


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
