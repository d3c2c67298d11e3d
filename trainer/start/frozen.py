"""Finds and checks the weights that are not trained, where its checkpoints leave them out."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from trainer.base.errors import CheckpointMismatchError
from trainer.base.hub import HubAccess
from trainer.base.start_from import StartFrom
from trainer.group.distributed import ProcessGroup
from trainer.start.carried import Target
from trainer.start.weights import InitialWeights, find_initial_weights

KEY = "frozen weights"


def digest_frozen(target: Target, weights: InitialWeights | None, group: ProcessGroup) -> str:
    """Digest the weights that no checkpoint of the run has, after `weights` are loaded; empty for none. Collective."""
    state, frozen = target.model.state_dict(), target.frozen_names

    def digest() -> str:
        held = weights.held if weights else {}
        check = 0
        for name in frozen:
            tensor = held.get(name, state[name]).detach().to(state[name].dtype).cpu().contiguous()
            check = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy(), zlib.crc32(name.encode(), check))
        return f"{check:08x}"

    return group.broadcast_from_main(digest) if frozen else ""


def find_frozen_weights(
    start: StartFrom, target: Target, group: ProcessGroup, access: HubAccess
) -> InitialWeights | None:
    """Read from `--init` the weights that a checkpoint leaves out; None without it. Collective.

    Raises:
        BadRequestError: they can't be read, or don't fit this model.
    """
    weights = find_initial_weights(start, target, group, access, needed=target.frozen_names)
    if weights is None:
        return None
    names = tuple(name for name in weights.names if name not in target.names)
    held = {name: tensor for name, tensor in weights.held.items() if name in names}
    line = f"the {len(names)} weights that are not trained are those of {weights.origin}"
    return replace(weights, names=names, held=held, report=(line,))


def check_frozen(fingerprint: Mapping[str, Any], digest: str) -> None:
    """Check that a checkpoint's frozen weights were these; one of an earlier version doesn't say.

    Raises:
        CheckpointMismatchError: they were others.
    """
    if fingerprint.get(KEY, digest) != digest:
        raise CheckpointMismatchError(
            "the weights that are not trained are others than those of the checkpoint",
            why=f"the checkpoint has only the trained ones, and was made with others (digest {fingerprint[KEY]}, "
            f"now {digest})",
            fix="give the same --init as at that run's start (beside --from, too), and restore the recipe's own model",
        )
