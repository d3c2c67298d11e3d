"""What tests of the box ask of DigitalOcean."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from azure.core.exceptions import HttpResponseError

from tests.cloudbox.digitalocean.box import DigitalOceanBox

REGION = "tor1"
SIZE = "gpu-h100x1-80gb"


def order(**more: Any) -> dict[str, Any]:
    """Return the body that creates one H100 droplet."""
    plain = {"name": "gpu", "region": REGION, "size": SIZE, "image": "gpu-h100x1-base"}
    return {**plain, **more}


def create(do: DigitalOceanBox, **more: Any) -> int:
    """Create one droplet, and return its id."""
    return int(do.client().droplets.create(order(**more))["droplet"]["id"])


def create_volume(do: DigitalOceanBox, name: str = "data", region: str = REGION, **more: Any) -> str:
    """Create a volume of 1 GiB, and return its id."""
    body = {"name": name, "region": region, "size_gigabytes": 1, **more}
    return str(do.client().volumes.create(body)["volume"]["id"])


def status_of(act: Callable[..., Any], *arguments: Any, **more: Any) -> int:
    """Make a call that must be refused, and return the status: some come as exceptions, some as values."""
    try:
        answer = act(*arguments, **more)
    except HttpResponseError as err:
        return int(err.status_code or 0)
    assert answer.keys() == {"id", "message"}, answer
    return {"not_found": 404, "bad_request": 400, "precondition_failed": 412}[answer["id"]]


def gpus(do: DigitalOceanBox) -> list[int]:
    """List the ids of the GPU droplets that the API shows."""
    return [droplet["id"] for droplet in do.client().droplets.list(type="gpus")["droplets"]]


def make_key(folder: Path) -> str:
    """Make a key pair in a folder, and return the public one."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    return (folder / "key.pub").read_text().strip()
