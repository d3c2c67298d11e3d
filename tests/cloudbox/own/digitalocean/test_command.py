"""The box as a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pydo

from tests.cloudbox.digitalocean.account.catalogue import DIGITALOCEAN
from tests.cloudbox.digitalocean.orders import SIZE, order, status_of
from tests.cloudbox.nspawn.order import REPOSITORY

PRICE = next(float(size.usd_per_hour) for size in DIGITALOCEAN.sizes if size.slug == SIZE)


def test_the_box_runs_as_a_program_and_takes_orders(tmp_path: Path) -> None:
    """Clients use it by the variables that it prints; it ends with its standard input, and leaves nothing."""
    argv = [sys.executable, "-m", "tests.cloudbox", "--digitalocean", "--no-machines", "--folder", str(tmp_path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, cwd=REPOSITORY, **pipes) as box:
        assert box.stdin
        assert box.stdout
        ready = json.loads(box.stdout.readline())
        control, environ = ready["control"], ready["environ"]
        trust = {"connection_verify": environ["KEDGE_DIGITALOCEAN_CA"], "retry_total": 0}
        endpoint = environ["KEDGE_DIGITALOCEAN_ENDPOINT"]
        with pydo.Client(environ["DIGITALOCEAN_ACCESS_TOKEN"], endpoint=endpoint, **trust) as client:
            _order(
                control, "faults", {"method": "POST", "path": "/v2/droplets", "effect": "error", "after_effect": True}
            )
            assert status_of(client.droplets.create, order()) == 500
            assert len(_order(control, "droplets")) == len(client.droplets.list(type="gpus")["droplets"]) == 1
            _order(control, "advance", {"seconds": 3600})
            assert PRICE * 0.995 < float(_order(control, "meter")["usd"]) < PRICE * 1.005
            _order(control, "settings", {"droplet_limit": 7})
            assert client.account.get()["account"]["droplet_limit"] == 7
        box.stdin.close()
        assert box.wait(30) == 0
    assert not list(tmp_path.iterdir())


def _order(control: str, what: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{control}/control/{what}", data=data, timeout=10) as answer:
        return json.load(answer)
