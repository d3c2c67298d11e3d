"""The state of every random generator of a process, as plain data that `weights_only` loading accepts."""

import random
from typing import Any

import numpy as np
import torch

RngState = dict[str, Any]


def seed_all(*, seed: int, rank: int, step: int) -> None:
    """Seed Python's, NumPy's and torch's generators; processes and steps get streams of their own."""
    value = int(np.random.SeedSequence((seed, rank, step)).generate_state(1)[0])
    random.seed(value)
    # Libraries in a recipe may draw from NumPy's global generator.
    np.random.seed(value)
    torch.manual_seed(value)


def capture_rng(device: torch.device) -> RngState:
    """Take the generators' states."""
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
    """Set the generators back to where `capture_rng` found them."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    legacy = state["numpy"]
    words_u32 = legacy["words"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", words_u32, legacy["position"], legacy["has_gauss"], legacy["gauss"]))
    torch.set_rng_state(state["torch"])
    if state["device"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["device"], device)
