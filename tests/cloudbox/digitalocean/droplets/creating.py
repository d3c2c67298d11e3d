"""The rules of droplets.create that DigitalOcean's OpenAPI description doesn't hold, and what is made in the end.

The sentences of refusals are DigitalOcean's as far as they are known; clients should go by status and id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.cloudbox.digitalocean.account.account import Account
from tests.cloudbox.digitalocean.account.call import ApiError, unprocessable
from tests.cloudbox.digitalocean.account.catalogue import Size
from tests.cloudbox.digitalocean.account.state import Droplet, Image, SshKey, Volume
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.digitalocean.resources.tagging import take_tags

_MOST_NAMES = 10
# fact: do-user-data-limit
_MOST_USER_DATA_BYTES = 64 * 1024


def create(cloud: Cloud, body: Mapping[str, Any]) -> list[Droplet]:
    """Create the droplets that a body asks for, all of them or none.

    Raises:
        ApiError: something of it can't be had.
    """
    account = cloud.account
    names = _names(body)
    size = _size(account, str(body.get("size")))
    region = str(body.get("region") or next(iter(size.regions), ""))
    _check_place(account, size, region)
    image = _image(account, body.get("image"), region, size)
    keys = [_key(account, one) for one in body.get("ssh_keys") or ()]
    volumes = _volumes(account, body.get("volumes") or (), region, len(names))
    vpc = _vpc(account, body.get("vpc_uuid"), region)
    if len((body.get("user_data") or "").encode()) > _MOST_USER_DATA_BYTES:
        raise unprocessable("User data is too long (maximum is 64 KiB)")
    if len(account.present()) + len(names) > account.settings.droplet_limit:
        raise unprocessable("creating this/these droplet(s) will exceed your droplet limit")
    gpus = sum(droplet.size.gpus for droplet in account.present()) + size.gpus * len(names)
    # fact: do-gpu-limit
    if size.gpus and gpus > account.settings.gpu_limit:
        raise unprocessable("creating this/these droplet(s) will exceed your GPU limit")
    tags = take_tags(account, body.get("tags"))
    now = account.clock.now()
    droplets = [
        Droplet(
            id=account.new_number(),
            name=name,
            region=region,
            size=size,
            image=image,
            address=cloud.addresses.take(),
            created_at=now,
            active_at=now + account.settings.activation_seconds,
            user_data=body.get("user_data") or "",
            public_keys=tuple(key.public_key for key in keys),
            tags=list(tags),
            vpc_uuid=vpc,
        )
        for name in names
    ]
    for droplet in droplets:
        account.droplets[droplet.id] = droplet
        account.file_away(f"do:droplet:{droplet.id}")
    for volume in volumes:
        volume.droplet_id = droplets[0].id
        droplets[0].volume_ids.append(volume.id)
    return droplets


def _names(body: Mapping[str, Any]) -> Sequence[str]:
    names: Sequence[str] = body["names"] if "names" in body else [body.get("name", "")]
    if not 1 <= len(names) <= _MOST_NAMES:
        raise unprocessable(f"You can create at most {_MOST_NAMES} Droplets at once")
    if not all(names):
        raise unprocessable("Name can't be blank")
    return names


def _size(account: Account, slug: str) -> Size:
    size = account.sizes.get(slug)
    if size is None:
        raise unprocessable("You specified an invalid size for Droplet creation.")
    if size.gpus and size.tier > account.settings.tier:
        status = account.settings.refused_tier_status
        code = "forbidden" if status == 403 else "unprocessable_entity"
        raise ApiError(status, code, "This size is not available to your account: contact support for GPU access.")
    return size


def _check_place(account: Account, size: Size, region: str) -> None:
    if region not in account.regions:
        raise unprocessable("You specified an invalid region for Droplet creation.")
    if not size.available or region not in size.regions or (size.slug, region) in account.sold_out:
        # So does lack of capacity look, though the size is still listed there. fact: do-capacity-is-422
        raise unprocessable("Size is not available in this region.")


def _image(account: Account, wanted: object, region: str, size: Size) -> Image:
    for image in account.images.values():
        if wanted in (image.id, str(image.id)) or (image.public and wanted == image.public.slug):
            if region not in image.regions:
                raise unprocessable("Image is not available in this region.")
            if image.min_disk_size > size.disk:
                raise unprocessable("This image is too large for the disk of this size.")
            return image
    raise unprocessable("You specified an invalid image for Droplet creation.")


def _key(account: Account, wanted: object) -> SshKey:
    for key in account.keys.values():
        if wanted in (key.id, str(key.id), key.fingerprint) and account.clock.now() >= key.accepted_at:
            return key
    raise unprocessable(f"{wanted} are invalid key identifiers for Droplet creation.")


def _volumes(account: Account, wanted: Sequence[str], region: str, droplets: int) -> list[Volume]:
    if wanted and droplets > 1:
        raise unprocessable("Volumes can't be attached to several Droplets")
    for volume_id in wanted:
        volume = account.volumes.get(volume_id)
        if volume is None:
            raise unprocessable("You specified an invalid volume for Droplet creation.")
        if volume.region != region:
            raise unprocessable("The volume is in another region than the Droplet")
        if volume.droplet_id is not None:
            raise unprocessable("The volume is already attached")
    return [account.volumes[volume_id] for volume_id in wanted]


def _vpc(account: Account, wanted: str | None, region: str) -> str:
    if not wanted:
        return account.default_vpc(region).id
    if wanted not in account.vpcs or account.vpcs[wanted].region != region:
        raise unprocessable("You specified an invalid VPC for Droplet creation.")
    return wanted
