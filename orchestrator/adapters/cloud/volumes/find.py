"""Finds data volumes by their names; those that exist decide the place of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.volumes.model import DataVolume, ListedVolume
from orchestrator.core.errors import BadRequestError, KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.volumes.model import VolumeApi
    from orchestrator.core.job import Resources, VolumeSpec


def locate_volumes(api: VolumeApi, resources: Resources) -> tuple[Resources, str | None]:
    """Find the job's volumes: an existing one decides the machine's place, and bills by its own size.

    Returns:
        The requirements with the sizes and speeds of the existing volumes, and their place; None if none exists.

    Raises:
        BadRequestError: they are in different places, so that no machine can have them all, or not where the job
            wants them.
        KedgeError: the cloud doesn't tell.
    """
    if not resources.volumes:
        return resources, None
    names = [spec.name for spec in resources.volumes]
    found: dict[str, ListedVolume] = {}
    for region in api.regions_of(resources):
        try:
            found |= find_volumes(api, names, region)
        except KedgeError as err:
            # In a closed region no machine could use the volume either; the list of offers reports the region.
            if not api.is_closed(err):
                raise
    places = {volume.place for volume in found.values()}
    wanted = resources.regions
    if len(places) > 1 or (wanted and any(volume.region not in wanted for volume in found.values())):
        raise _not_together(api, found)
    sized = tuple(_as_it_is(spec, found.get(spec.name)) for spec in resources.volumes)
    return replace(resources, volumes=sized), next(iter(places), None)


def find_volumes(api: VolumeApi, names: Sequence[str], region: str) -> Mapping[str, ListedVolume]:
    """Find the volumes with these names.

    Raises:
        KedgeError: the cloud doesn't tell, or has two of one name.
    """
    found: dict[str, ListedVolume] = {}
    for volume in api.list_named(names, region):
        earlier = found.setdefault(volume.name, volume)
        if earlier is not volume:
            raise KedgeError(
                f"there are two data volumes called {volume.name}{f' in {region}' if region else ''}",
                why=f"{earlier.id} and {volume.id} both carry the tag {api.name_tag(volume.name)}",
                fix="remove the tag from the wrong one",
            )
    return found


def existing_volumes(api: VolumeApi, specs: Sequence[VolumeSpec], region: str) -> tuple[DataVolume, ...]:
    """Return the volumes that exist, whichever machine has them. No call if `specs` is empty.

    Raises:
        KedgeError: the cloud doesn't tell, or has two of one name.
    """
    if not specs:
        return ()
    found = find_volumes(api, [spec.name for spec in specs], region)
    return tuple(
        of_machine(api, found[spec.name], spec, number) for number, spec in enumerate(specs) if spec.name in found
    )


def of_machine(
    api: VolumeApi, listed: ListedVolume, spec: VolumeSpec, number: int, *, is_new: bool = False
) -> DataVolume:
    """Combine a listed volume with what the run wants of it."""
    return DataVolume(listed=listed, spec=spec, number=number, device=api.device_of(number), is_new=is_new)


def _not_together(api: VolumeApi, found: Mapping[str, ListedVolume]) -> BadRequestError:
    word = api.traits.place_word
    where = ", ".join(f"{name} in {volume.place}" for name, volume in sorted(found.items()))
    return BadRequestError(
        "these volumes can't be attached to one machine there",
        why=f"a volume serves machines of its own {word} only: {where}",
        fix=f"choose a --region that has one of them, or copy one by a snapshot into the other's {word}",
    )


def _as_it_is(spec: VolumeSpec, there: ListedVolume | None) -> VolumeSpec:
    """Take size and speed from an existing volume: it bills by those, whatever the job wants for a new one."""
    if there is None:
        return spec
    if there.iops is None:
        # The cloud sells no speeds and no snapshots: these stay in the spec, and its offers refuse them.
        return replace(spec, size_gib=there.size_gib)
    return replace(
        spec,
        size_gib=there.size_gib,
        iops=there.iops,
        mibps=there.mibps,
        snapshot_id=None,
        initialization_mibps=None,
    )
