"""Captures and restores the state of a process's random generators, as plain data that `weights_only` can load."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

RngState = dict[str, Any]


def seed_all(*, seed: int, rank: int, step: int, stream: int = 0) -> None:
    """Seed Python's, NumPy's and torch's generators; each rank, step and stream gets numbers of its own."""
    value = int(np.random.SeedSequence((seed, rank, step, *([stream] if stream else []))).generate_state(1)[0])
    random.seed(value)
    # Libraries in a recipe may draw from NumPy's global generator.
    np.random.seed(value)
    torch.manual_seed(value)


def capture_rng(device: torch.device) -> RngState:
    """Return the generators' states."""
    numpy_state = np.random.get_state(legacy=False)
    words = torch.from_numpy(numpy_state["state"]["key"].astype(np.int64))
    return {
        "python": random.getstate(),
        "numpy": {
            "words": words,
            "position": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_rng(state: RngState, device: torch.device) -> None:
    """Restore the generators' states."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    legacy = state["numpy"]
    words_u32 = legacy["words"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", words_u32, legacy["position"], legacy["has_gauss"], legacy["gauss"]))
    torch.set_rng_state(state["torch"])
    if state["device"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["device"], device)


class RandomStreams:
    """Keeps the random states of training apart from what validation and samples draw in between."""

    def __init__(self, *, seed: int, rank: int, device: torch.device) -> None:
        self._seed = seed
        self._rank = rank
        self._device = device
        self._held: RngState | None = None

    def training_state(self) -> RngState:
        """Return the states with which training goes on, wherever this is called."""
        return self._held or capture_rng(self._device)

    @contextmanager
    def apart(self, stream: int, *, step: int) -> Iterator[None]:
        """Seed the generators from (seed, rank, step, stream) for the block, and restore training's afterwards."""
        self._held = capture_rng(self._device)
        seed_all(seed=self._seed, rank=self._rank, step=step, stream=stream)
        try:
            yield
        finally:
            restore_rng(self._held, self._device)
            self._held = None
