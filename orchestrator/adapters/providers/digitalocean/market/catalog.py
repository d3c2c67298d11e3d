"""The site's catalog of sizes and regions: live, or from the dated snapshot if the site can't be reached."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.providers.digitalocean.market.sizes import Size, parse_size
from orchestrator.adapters.rest.failures import RefusedError, UnclearError
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.core.ports import Clock

_STORAGE = "storage"
"""The feature of regions with volumes. Whether AMD's region has it isn't known (inferred: amd-no-storage)."""
_FACTS = ("basis", "source", "regions", "volume_regions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The sizes and regions at one moment.

    Attributes:
        basis: `live`, or the snapshot's date, as the plan shows it.
        regions: those that accept new droplets.
        volume_regions: those with data volumes.
    """

    basis: str
    sizes: tuple[Size, ...]
    regions: tuple[str, ...]
    volume_regions: tuple[str, ...]
    source: Mapping[str, str]
    is_live: bool = False


def read_catalog(api: Api, path: Path | None = None) -> Catalog:
    """Read the catalog from the site; without a network or a token, from the snapshot.

    Args:
        api: the site's API.
        path: another snapshot than the one installed with kedge.

    Raises:
        KedgeError: the API refuses.
    """
    if not api.site.token:
        return _read_snapshot(api.site.name, path, f"there is no {api.site.token_names[0]}")
    try:
        return ask_catalog(api)
    except RefusedError as err:
        if err.status:
            raise
        return _read_snapshot(api.site.name, path, err.why)
    except UnclearError as err:
        return _read_snapshot(api.site.name, path, err.why)


def ask_catalog(api: Api) -> Catalog:
    """Read the catalog from the API.

    Raises:
        ApiError: it refuses, or doesn't answer.
    """
    what = f"what {api.site.name} sells can't be listed"
    sizes = tuple(parse_size(fields) for fields in api.pages(what, api.client.sizes.list, "sizes"))
    regions = list(api.pages(what, api.client.regions.list, "regions"))
    return Catalog(
        basis="live",
        sizes=sizes,
        regions=tuple(fields["slug"] for fields in regions if fields["available"]),
        volume_regions=tuple(fields["slug"] for fields in regions if _STORAGE in fields["features"]),
        source={"name": api.site.endpoint},
        is_live=True,
    )


def refresh_snapshot(api: Api, clock: Clock, path: Path | None = None) -> str:
    """Rewrite the site's part of the snapshot from the live API; return a line about it.

    Raises:
        KedgeError: the API can't be reached; the file stays as it was.
    """
    target = path or snapshot_path()
    asked = ask_catalog(api)
    now = clock.now()
    document = json.loads(target.read_bytes())
    document[api.site.name] = {
        "basis": f"a snapshot of {now:%Y-%m-%d}",
        "source": {
            "name": f"the API at {api.site.endpoint}, by `invoke offers --refresh`",
            "read": now.isoformat(timespec="seconds"),
        },
        "regions": sorted(asked.regions),
        "volume_regions": sorted(asked.volume_regions),
        "sizes": [_row(size) for size in sorted(asked.sizes, key=lambda each: each.slug)],
    }
    write_atomically(target, _dump(document).encode(), mode=0o644)
    return f"{target}: {document[api.site.name]['basis']}, {len(asked.sizes)} sizes"


def snapshot_path() -> Path:
    """Return the file that is installed with kedge."""
    return resource("infra", "digitalocean", "offers.json")


def read_snapshot(name: str, path: Path | None = None) -> Catalog:
    """Read another site's catalog from the snapshot.

    Raises:
        KedgeError: the file can't be read.
    """
    return _read_snapshot(name, path, "it wasn't asked")


def _read_snapshot(name: str, path: Path | None, why: str) -> Catalog:
    target = path or snapshot_path()
    try:
        part = json.loads(target.read_bytes())[name]
        return Catalog(
            basis=f"{part['basis']}; {name} could not be queried ({why})",
            sizes=tuple(_size(row) for row in part["sizes"]),
            regions=tuple(part["regions"]),
            volume_regions=tuple(part["volume_regions"]),
            source=part["source"],
        )
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as err:
        raise KedgeError(
            f"the snapshot of {name}'s prices can't be read",
            why=f"{target}: {err}",
            fix="take a new one with `invoke offers --refresh`, or install kedge again",
        ) from err


def _size(row: Mapping[str, Any]) -> Size:
    return Size(**{**row, "usd_per_hour": Decimal(row["usd_per_hour"]), "regions": tuple(row["regions"])})


def _row(size: Size) -> dict[str, object]:
    return {**asdict(size), "usd_per_hour": str(size.usd_per_hour), "regions": list(size.regions)}


def _dump(document: Mapping[str, Any]) -> str:
    """Render one line for each size, so that diffs are readable."""
    parts = []
    for name, part in document.items():
        rows = ",\n".join(f"      {json.dumps(row)}" for row in part["sizes"])
        facts = "".join(f"    {json.dumps(key)}: {json.dumps(part[key])},\n" for key in _FACTS)
        parts.append(f'  {json.dumps(name)}: {{\n{facts}    "sizes": [\n{rows}\n    ]\n  }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"
