"""The tags by which everything of kedge's is found again.

A tag has letters, digits, colons, dashes and underscores only: the dots of ids and prices are written otherwise. Their
letters keep the case in which a tag was first made, so that ids are compared without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from orchestrator.adapters.ids import is_id
from orchestrator.core.job import DEFAULT_DEADLINE, AtEnd

KEDGE = "kedge"
"""On everything of kedge's."""
CREATED = "kedge-created"
"""On volumes that kedge made: no other is ever formatted or deleted."""

_RUN = "kedge-run:"
_MACHINE = "kedge-machine:"
_ORDER = "kedge-order:"
_VOLUME = "kedge-volume:"
_AT_END = "kedge-at-end:"
_ORDER_FORM = re.compile(
    r"kedge-order:(?P<attempt>[0-9a-f]+):(?P<lifetime>[0-9]{1,9}):(?P<price>[0-9]{1,6}(?:_[0-9]{1,12})?):(?P<machine>.+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTag:
    """What a droplet itself says of its order.

    Attributes:
        attempt: tells two requests for the same machine apart: each has a host key of its own.
    """

    attempt: str = ""
    lifetime: timedelta = DEFAULT_DEADLINE
    usd_per_hour: Decimal = Decimal(0)


def run_tag(run_id: str) -> str:
    """Return the tag of what belongs to a run."""
    return _RUN + _write(run_id)


def machine_tag(machine_id: str) -> str:
    """Return the tag of one machine: its droplet is found by it, whatever becomes of the request's answer."""
    return _MACHINE + _write(machine_id)


def droplet_tags(
    *, machine_id: str, run_id: str, attempt: str, lifetime_seconds: int, usd_per_hour: Decimal
) -> list[str]:
    """Return all tags of a machine's droplet."""
    price = format(usd_per_hour, "f").replace(".", "_")
    about = f"{_ORDER}{attempt}:{lifetime_seconds}:{price}:{_write(machine_id)}"
    return [KEDGE, run_tag(run_id), machine_tag(machine_id), about]


def is_kedges(tags: Iterable[str]) -> bool:
    """Tell whether one of a droplet's tags is kedge's: people may have taken the others away."""
    return any(tag.lower() == KEDGE or tag.lower().startswith((_RUN, _MACHINE, _ORDER)) for tag in tags)


def volume_tag(name: str) -> str:
    """Return the tag of a data volume's name."""
    return _VOLUME + _write(name)


def use_tags(run_id: str, at_end: AtEnd) -> list[str]:
    """Return the tags of a data volume that a run uses: they decide what becomes of it at the run's end."""
    return [run_tag(run_id), _AT_END + at_end.value]


def run_of(tags: Iterable[str]) -> str:
    """Return the run that tags name, empty for none."""
    return _find(tags, _RUN)


def machine_of(tags: Iterable[str]) -> str:
    """Return the machine that tags name, empty for none: anybody in the account may write a tag."""
    name = _find(tags, _MACHINE)
    return name if is_id(name) else ""


def volume_of(tags: Iterable[str]) -> str:
    """Return the data volume's name."""
    return _find(tags, _VOLUME)


def at_end_of(tags: Iterable[str]) -> AtEnd:
    """Return what becomes of a data volume; without a word it is kept."""
    said = _find(tags, _AT_END)
    return AtEnd(said) if said in set(AtEnd) else AtEnd.KEEP


def order_of(tags: Iterable[str]) -> OrderTag:
    """Return what a droplet says of its order; defaults where it says nothing."""
    found = next((match for tag in tags if (match := _ORDER_FORM.fullmatch(tag))), None)
    if found is None:
        return OrderTag()
    return OrderTag(
        attempt=found["attempt"],
        lifetime=timedelta(seconds=int(found["lifetime"])),
        usd_per_hour=Decimal(found["price"].replace("_", ".")),
    )


def is_of_run(tag: str, run_id: str) -> bool:
    """Tell whether a tag is a run's own: its tag, or that of one of its machines."""
    if tag.lower() == run_tag(run_id).lower():
        return True
    found = _ORDER_FORM.fullmatch(tag)
    machine = _read(found["machine"]) if found else _find([tag], _MACHINE)
    return machine.lower().rpartition("-m")[0] == run_id.lower() and machine.rpartition("-m")[2].isdecimal()


def use_tags_of(tags: Iterable[str]) -> list[str]:
    """Return those of a volume's tags that say which run used it last."""
    return [tag for tag in tags if tag.startswith((_RUN, _AT_END))]


def _find(tags: Iterable[str], prefix: str) -> str:
    return next((_read(tag.removeprefix(prefix)) for tag in tags if tag.startswith(prefix)), "")


def _write(text: str) -> str:
    return text.replace(".", ":")


def _read(text: str) -> str:
    return text.replace(":", ".")
