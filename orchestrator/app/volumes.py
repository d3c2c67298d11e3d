"""The use case of `kedge volumes`: lists the data volumes of all runs at every provider, and deletes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.app.reaping import Unseen, ask_each, unseen_parts
from orchestrator.core.errors import BadRequestError, ConflictError
from orchestrator.core.ledger import RunStage
from orchestrator.core.sweep import DATA_VOLUME, Leftover, Sweep

if TYPE_CHECKING:
    from orchestrator.app.root import App
    from orchestrator.core.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVolume:
    """A data volume at a provider.

    Attributes:
        id: the provider's.
        name: the one in job files.
        run_id: the run that used it last.
        usd_per_hour: its list price, whether or not a machine has it.
        kept: it outlives its runs.
    """

    id: str
    name: str
    provider: str
    region: str
    run_id: str
    created_at: datetime | None
    usd_per_hour: Decimal
    kept: bool

    @property
    def place(self) -> str:
        """The volume's id, and where it is."""
        return f"{self.id} at {self.provider}{f' in {self.region}' if self.region else ''}"

    @property
    def described(self) -> str:
        """What a user has to know before it is deleted."""
        return f"{self.name} ({self.place}), last used by {f'run {self.run_id}' if self.run_id else 'no known run'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeList:
    """All data volumes at the providers that could be queried."""

    volumes: tuple[DataVolume, ...]
    unseen: tuple[Unseen, ...]

    def choose(self, wanted: str) -> DataVolume:
        """Return the volume with this name or id.

        Raises:
            BadRequestError: there is none, there are several, or another one may have this name where nothing could be
                queried.
        """
        silent = ", ".join(dict.fromkeys(each.provider for each in self.unseen if each.matters))
        found = [volume for volume in self.volumes if wanted in (volume.name, volume.id)]
        if len(found) == 1 and (not silent or wanted == found[0].id):
            return found[0]
        if found:
            several = f"there are {len(found)}" if len(found) > 1 else "there may be several"
            unseen = f"; not everything could be queried: {silent}" if silent else ""
            raise BadRequestError(
                f"{several} data volumes called {wanted}",
                why=", ".join(volume.place for volume in found) + unseen,
                fix="name one by its id",
            )
        raise BadRequestError(
            f"there is no data volume {wanted}",
            why=f"not everything could be queried: {silent}" if silent else "",
            fix="list them with `kedge volumes`",
        )


def list_volumes(app: App, providers: Sequence[str]) -> VolumeList:
    """Sweep every provider, or those that are named, for data volumes.

    Raises:
        BadRequestError: a named provider is unknown.
    """
    swept = ask_each(app, providers, lambda world: world.provider.sweep())
    found = {name: seen for name, seen in swept.items() if isinstance(seen, Sweep)}
    partly = [part for name, seen in found.items() for part in unseen_parts(name, seen.unseen) if part.matters]
    return VolumeList(
        volumes=tuple(
            _data_volume(name, left)
            for name, seen in found.items()
            for left in seen.leftovers
            if left.kind == DATA_VOLUME
        ),
        unseen=(*(seen for seen in swept.values() if isinstance(seen, Unseen)), *partly),
    )


def delete_volume(app: App, volume: DataVolume) -> None:
    """Delete it, with everything that is on it.

    Raises:
        BadRequestError: kedge didn't make it.
        ConflictError: a machine has it, or its run isn't over.
        KedgeError: the provider doesn't allow it.
    """
    require_over(app.ledger, volume)
    app.world(volume.provider).provider.delete_volume(volume.id, volume.region)


def require_over(ledger: Ledger, volume: DataVolume) -> None:
    """Refuse a volume whose last run isn't over, even if no machine has it: the run's next machine gets it.

    Raises:
        ConflictError: the run is live.
    """
    record = ledger.run(volume.run_id)
    if record is not None and record.stage is RunStage.LIVE:
        raise ConflictError(
            f"the data volume {volume.name} ({volume.id}) is in use",
            why=f"run {volume.run_id} isn't over, and gets it with its next machine",
            fix=f"end the run first, with `kedge teardown {volume.run_id}`",
        )


def _data_volume(provider: str, left: Leftover) -> DataVolume:
    return DataVolume(
        id=left.id,
        name=left.name.removesuffix(f" ({left.id})"),
        provider=provider,
        region=left.region,
        run_id=left.run_id,
        created_at=left.created_at,
        usd_per_hour=left.usd_per_hour,
        kept=left.kept,
    )
