"""What it means when a droplet is refused: whether the next offer may do, and which offers won't."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.keys import is_key_refusal
from orchestrator.core.errors import KedgeError, NoCapacityError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.failures import RefusedError
    from orchestrator.core.machine import MachineOrder
    from orchestrator.core.offer import Offer

_SOLD_OUT = ("not available in", "region is not available", "unavailable", "capacity", "sold out")
"""Lack of capacity has no code of its own: it looks like a size that isn't sold in the region."""
_GPU_LIMIT = "gpu limit"
_LIMIT = "limit"
_TIER = ("not available to your account", "access to this size", "gpu access", "tier")


def translate_refusal(err: RefusedError, order: MachineOrder) -> KedgeError:
    """Make an error of a refusal that says which offers to try next.

    Args:
        err: the refusal of the order; the caller raises the result `from` it.
        order: what was asked for.
    """
    said = err.message.lower()
    if err.status not in (403, 422):
        return err
    if is_key_refusal(err):
        return KedgeError(
            f"machine {order.id} can't be created",
            why=f"the account has the SSH key, and creations don't accept it: {err.why}",
            fix="run the command again in some minutes",
        )
    if any(words in said for words in _TIER):
        return NoCapacityError(
            f"the account may not have a {order.instance_type}",
            why=err.why,
            fix="ask the site's support for access to GPUs of this kind, or choose another --gpu",
            covers=lambda offer: _is_like(offer, order),
        )
    if _LIMIT in said:
        return _over_limit(err, order, counts_gpus=_GPU_LIMIT in said)
    if any(words in said for words in _SOLD_OUT):
        return NoCapacityError(
            f"{order.instance_type} can't be had in {order.region} now",
            why=err.why,
            fix="try again later, or allow more regions",
        )
    return err


def _over_limit(err: RefusedError, order: MachineOrder, *, counts_gpus: bool) -> NoCapacityError:
    if counts_gpus:
        return NoCapacityError(
            f"the account may have no more GPUs, and machine {order.id} needs some",
            why=err.why,
            fix="end a GPU droplet that isn't needed, or ask the site's support for a higher GPU limit: it is apart "
            "from the limit of droplets",
            covers=lambda offer: offer.accelerators is not None,
        )
    return NoCapacityError(
        f"the account has no room for machine {order.id}",
        why=err.why,
        fix="destroy a droplet that isn't needed, or ask the site's support for a higher limit",
        # It counts droplets of all sizes, in all regions.
        covers=lambda _offer: True,
    )


def _is_like(offer: Offer, order: MachineOrder) -> bool:
    return offer.instance_type == order.instance_type
