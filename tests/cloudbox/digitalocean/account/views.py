"""How the API shows resources."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from tests.cloudbox.digitalocean.account.account import Account
from tests.cloudbox.digitalocean.account.clock import iso
from tests.cloudbox.digitalocean.account.state import (
    Action,
    Droplet,
    Firewall,
    Image,
    Project,
    ReservedIp,
    SshKey,
    Volume,
    VolumeSnapshot,
    Vpc,
)


def show_region(account: Account, slug: str) -> dict[str, Any]:
    """Show a region with the sizes that are offered in it."""
    sizes = [size.slug for size in account.sizes.values() if slug in size.regions and size.available]
    region = account.regions[slug]
    return {"name": region.name, "slug": slug, "features": list(region.features), "available": True, "sizes": sizes}


def show_action(account: Account, action: Action) -> dict[str, Any]:
    """Show an action, completed or not yet."""
    done = account.clock.now() >= action.done_at
    ended = "errored" if action.fails else "completed"
    return {
        "id": action.id,
        "status": ended if done else "in-progress",
        "type": action.type,
        "started_at": iso(action.started_at),
        "completed_at": iso(action.done_at) if done else None,
        "resource_id": action.resource_id,
        "resource_type": action.resource_type,
        "region": show_region(account, action.region),
        "region_slug": action.region,
    }


def show_image(image: Image) -> dict[str, Any]:
    """Show an image."""
    return {
        "id": image.id,
        "name": image.name,
        # One-click applications are snapshots too, of DigitalOcean's own droplets.
        "type": "base" if image.public and image.public.kind == "distribution" else "snapshot",
        "distribution": image.public.distribution if image.public else "Ubuntu",
        "slug": image.public.slug if image.public else None,
        "public": image.public is not None,
        "regions": list(image.regions),
        "created_at": iso(image.created_at),
        "min_disk_size": image.min_disk_size,
        "size_gigabytes": image.size_gigabytes,
        "description": image.name,
        "tags": list(image.tags),
        "status": "available",
        "error_message": "",
    }


def show_droplet(account: Account, droplet: Droplet) -> dict[str, Any]:
    """Show a droplet."""
    size = droplet.size.describe()
    shown = {
        "id": droplet.id,
        "name": droplet.name,
        "memory": droplet.size.memory,
        "vcpus": droplet.size.vcpus,
        "disk": droplet.size.disk,
        "disk_info": size["disk_info"],
        "locked": False,
        "status": droplet.status(account.clock.now()),
        "created_at": iso(droplet.created_at),
        "features": ["droplet_agent", "private_networking"],
        "backup_ids": [],
        "next_backup_window": None,
        "snapshot_ids": [image.id for image in account.images.values() if image.droplet_id == droplet.id],
        "image": show_image(droplet.image),
        "volume_ids": list(droplet.volume_ids),
        "size": size,
        "size_slug": droplet.size.slug,
        "networks": _networks(account, droplet),
        "region": show_region(account, droplet.region),
        "tags": list(droplet.tags),
        "vpc_uuid": droplet.vpc_uuid,
    }
    return {**shown, "gpu_info": size["gpu_info"]} if droplet.size.gpus else shown


def _networks(account: Account, droplet: Droplet) -> dict[str, Any]:
    # It may be active for a while without an address. fact: do-address-late
    if account.clock.now() < droplet.active_at + account.settings.address_seconds:
        return {"v4": [], "v6": []}
    public = {"ip_address": droplet.address, "netmask": "255.0.0.0", "gateway": "127.0.0.1", "type": "public"}
    network = ip_network(account.vpcs[droplet.vpc_uuid].ip_range)
    host = private_address(account, droplet)
    private = {"ip_address": host, "netmask": str(network.netmask), "gateway": str(network[1]), "type": "private"}
    return {"v4": [private, public], "v6": []}


def private_address(account: Account, droplet: Droplet) -> str:
    """Return a droplet's address in its VPC."""
    # fact: do-private-network
    network = ip_network(account.vpcs[droplet.vpc_uuid].ip_range)
    return str(network[2 + droplet.id % (network.num_addresses - 3)])


def show_volume(account: Account, volume: Volume) -> dict[str, Any]:
    """Show a volume."""
    return {
        "id": volume.id,
        "region": show_region(account, volume.region),
        "droplet_ids": [] if volume.droplet_id is None else [volume.droplet_id],
        "name": volume.name,
        "description": volume.description,
        "size_gigabytes": volume.size_gigabytes,
        "created_at": iso(volume.created_at),
        "filesystem_type": volume.filesystem_type,
        "filesystem_label": volume.filesystem_label,
        "tags": list(volume.tags),
    }


def show_volume_snapshot(snapshot: VolumeSnapshot) -> dict[str, Any]:
    """Show a volume's snapshot."""
    return {
        "id": snapshot.id,
        "name": snapshot.name,
        "created_at": iso(snapshot.created_at),
        "regions": [snapshot.region],
        "min_disk_size": snapshot.min_disk_size,
        "size_gigabytes": snapshot.size_gigabytes,
        "resource_id": snapshot.volume_id,
        "resource_type": "volume",
        "tags": list(snapshot.tags),
    }


def show_droplet_snapshot(image: Image) -> dict[str, Any]:
    """Show a droplet's snapshot, as the listing of all snapshots does."""
    return {
        "id": str(image.id),
        "name": image.name,
        "created_at": iso(image.created_at),
        "regions": list(image.regions),
        "min_disk_size": image.min_disk_size,
        "size_gigabytes": image.size_gigabytes,
        "resource_id": str(image.droplet_id),
        "resource_type": "droplet",
        "tags": list(image.tags),
    }


def show_key(key: SshKey) -> dict[str, Any]:
    """Show a public key."""
    return {"id": key.id, "fingerprint": key.fingerprint, "public_key": key.public_key, "name": key.name}


def show_firewall(account: Account, firewall: Firewall) -> dict[str, Any]:
    """Show a firewall; a change of it reaches the droplets that it concerns after a while."""
    # fact: do-firewall-pending
    lags = account.clock.now() < firewall.changed_at + account.settings.firewall_seconds
    late = [droplet.id for droplet in account.present() if lags and firewall.concerns(droplet)]
    return {
        "id": firewall.id,
        "status": "waiting" if late else "succeeded",
        "created_at": iso(firewall.created_at),
        "pending_changes": [{"droplet_id": each, "removing": False, "status": "waiting"} for each in late],
        "name": firewall.name,
        "droplet_ids": list(firewall.droplet_ids),
        "tags": list(firewall.tags),
        "inbound_rules": list(firewall.inbound_rules),
        "outbound_rules": list(firewall.outbound_rules),
    }


def show_reserved_ip(account: Account, reserved: ReservedIp) -> dict[str, Any]:
    """Show a reserved address with its droplet, where it has one."""
    droplet = account.droplets.get(reserved.droplet_id or 0)
    return {
        "ip": reserved.ip,
        "region": show_region(account, reserved.region),
        "droplet": show_droplet(account, droplet) if droplet else None,
        "locked": False,
        "project_id": reserved.project_id,
    }


def show_project(project: Project) -> dict[str, Any]:
    """Show a project."""
    return {
        "id": project.id,
        "owner_uuid": "00000000-0000-4000-8000-000000000001",
        "owner_id": 1,
        "name": project.name,
        "description": project.description,
        "purpose": project.purpose,
        "environment": project.environment,
        "is_default": project.is_default,
        "created_at": iso(project.created_at),
        "updated_at": iso(project.created_at),
    }


def show_vpc(vpc: Vpc) -> dict[str, Any]:
    """Show a private network."""
    return {
        "id": vpc.id,
        "urn": f"do:vpc:{vpc.id}",
        "name": vpc.name,
        "description": vpc.description,
        "region": vpc.region,
        "ip_range": vpc.ip_range,
        "default": vpc.default,
        "created_at": iso(vpc.created_at),
    }
