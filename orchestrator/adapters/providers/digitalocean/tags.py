"""The tags by which kedge finds its resources again.

A tag has letters, digits, colons, dashes and underscores only, so that the dots of ids and prices are encoded. A tag
keeps the case in which it was first created in the account, so that ids are compared without case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.adapters.host.ids import is_id
from orchestrator.core.job import DEFAULT_TIME_LIMIT, AtEnd

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.model import Marks

KEDGE = "kedge"
"""On all of kedge's resources."""
CREATED = "kedge-created"
"""On volumes that kedge created: only these are ever formatted or deleted."""

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
    """The values of an order, from its droplet's tag.

    Attributes:
        attempt: distinguishes two requests for the same machine: each has its own host key.
    """

    attempt: str = ""
    lifetime: timedelta = DEFAULT_TIME_LIMIT
    usd_per_hour: Decimal = Decimal(0)


def run_tag(run_id: str) -> str:
    """Return the tag of a run's resources."""
    return _RUN + _write(run_id)


def machine_tag(machine_id: str) -> str:
    """Return the tag of one machine, which finds its droplet even if the answer to the request was lost."""
    return _MACHINE + _write(machine_id)


def droplet_tags(marks: Marks) -> list[str]:
    """Return all tags of a machine's droplet."""
    price = format(marks.usd_per_hour, "f").replace(".", "_")
    about = f"{_ORDER}{marks.attempt}:{marks.lifetime_seconds}:{price}:{_write(marks.machine_id)}"
    return [KEDGE, run_tag(marks.run_id), machine_tag(marks.machine_id), about]


def moved_tags(tags: Iterable[str], lifetime: timedelta) -> dict[str, str]:
    """Return a droplet's order tags with another lifetime, by the tags that they replace."""
    found = {tag: match for tag in tags if (match := _ORDER_FORM.fullmatch(tag))}
    seconds = lifetime // timedelta(seconds=1)
    return {
        tag: f"{_ORDER}{each['attempt']}:{seconds}:{each['price']}:{each['machine']}" for tag, each in found.items()
    }


def is_kedges(tags: Iterable[str]) -> bool:
    """Tell whether one of a droplet's tags is kedge's: people may have removed the others."""
    return any(tag.lower() == KEDGE or tag.lower().startswith((_RUN, _MACHINE, _ORDER)) for tag in tags)


def volume_tag(name: str) -> str:
    """Return the tag of a data volume's name."""
    return _VOLUME + _write(name)


def use_tags(run_id: str, at_end: AtEnd) -> list[str]:
    """Return the tags of a data volume that a run uses: they decide what happens to it at the run's end."""
    return [run_tag(run_id), _AT_END + at_end.value]


def run_of(tags: Iterable[str]) -> str:
    """Return the run in some tags; empty for none."""
    return _find(tags, _RUN)


def machine_of(tags: Iterable[str]) -> str:
    """Return the machine in some tags; empty for none or an invalid id: anybody in the account may write a tag."""
    name = _find(tags, _MACHINE)
    return name if is_id(name) else ""


def volume_of(tags: Iterable[str]) -> str:
    """Return the data volume's name in some tags."""
    return _find(tags, _VOLUME)


def at_end_of(tags: Iterable[str]) -> AtEnd:
    """Return what happens to a data volume at the run's end; it is kept without a tag."""
    said = _find(tags, _AT_END)
    return AtEnd(said) if said in set(AtEnd) else AtEnd.KEEP


def order_of(tags: Iterable[str]) -> OrderTag:
    """Return the values of a droplet's order; defaults without a tag.

    While its deadline is moved a droplet has two such tags: the later deadline counts.
    """
    matches = (match for tag in tags if (match := _ORDER_FORM.fullmatch(tag)))
    found = max(matches, key=lambda match: int(match["lifetime"]), default=None)
    if found is None:
        return OrderTag()
    return OrderTag(
        attempt=found["attempt"],
        lifetime=timedelta(seconds=int(found["lifetime"])),
        usd_per_hour=Decimal(found["price"].replace("_", ".")),
    )


def is_of_run(tag: str, run_id: str) -> bool:
    """Tell whether a tag names a run or one of its machines."""
    if tag.lower() == run_tag(run_id).lower():
        return True
    found = _ORDER_FORM.fullmatch(tag)
    machine = _read(found["machine"]) if found else _find([tag], _MACHINE)
    return machine.lower().rpartition("-m")[0] == run_id.lower() and machine.rpartition("-m")[2].isdecimal()


def use_tags_of(tags: Iterable[str]) -> list[str]:
    """Return the tags of a volume that name the run which used it last."""
    return [tag for tag in tags if tag.startswith((_RUN, _AT_END))]


def _find(tags: Iterable[str], prefix: str) -> str:
    return next((_read(tag.removeprefix(prefix)) for tag in tags if tag.startswith(prefix)), "")


def _write(text: str) -> str:
    return text.replace(".", ":")


def _read(text: str) -> str:
    return text.replace(":", ".")
