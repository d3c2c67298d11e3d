"""A droplet's user-data: its golden file, checks by cloud-init, shellcheck and systemd, and that it has no secret."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.adapters.cloud.boot.cloud_config import BootSpec, BootVolume, Origin
from orchestrator.adapters.cloud.boot.user_data import render_user_data
from orchestrator.adapters.providers.digitalocean.self_deletion import SelfDelete, render_end_script
from orchestrator.adapters.providers.digitalocean.traits import BOOT
from orchestrator.core.errors import KedgeError
from orchestrator.core.protocol.wire import BootOrder, MachineConfig

GOLDEN = Path(__file__).parents[2] / "golden" / "user_data" / "droplet.yaml"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFn8X5Cj/6orHR5/VFCM1r5Dx+I26k/tXQGWxY7y9LP2"
HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nthrown away\n-----END OPENSSH PRIVATE KEY-----\n"
ENDING = SelfDelete(endpoint="https://api.digitalocean.com", token="dop_v1_T0ken", token_name="DELETE_TOKEN")
VOLUME = BootVolume(serial="kedge-digits-7f3a-scratch", target="scratch", origin=Origin.MADE)
SPEC = BootSpec(
    machine=MachineConfig(
        machine="digits-7f3a-1",
        run="digits-7f3a",
        provider="do",
        root="/opt/kedge",
        created=0,
        deadline_at=0,
        usd_per_hour="1.99",
        store_url="s3://mine/runs?region=nyc3&endpoint=https://nyc3.digitaloceanspaces.com"
        "&keys=/opt/kedge/private/spaces.json",
        end_command=ENDING.command,
    ),
    lifetime_seconds=3600,
    boot=BootOrder(),
    authorized_key=f"{KEY} kedge",
    host_private_key=HOST_KEY,
    host_public_key="ecdsa-sha2-nistp256 AAAAE2VjZHNh",
    end_script=render_end_script(ENDING, ["506f78a4-e098-11e5-ad9f-000f53306ae1"]),
    volumes=(VOLUME,),
)


def render(spec: BootSpec) -> str:
    return render_user_data(spec, BOOT).decode()


def config() -> dict[str, Any]:
    loaded = yaml.safe_load(render(SPEC))
    assert isinstance(loaded, dict)
    return loaded


def files() -> dict[str, str]:
    return {entry["path"]: entry["content"] for entry in config()["write_files"]}


def check(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_user_data_equals_its_golden_file() -> None:
    """A change of the templates shows up as a change of this file."""
    assert render(SPEC) == GOLDEN.read_text()


def test_cloud_init_finds_it_valid(tmp_path: Path) -> None:
    """As plain text, which is what the API accepts."""
    (tmp_path / "user-data").write_text(render(SPEC))
    check(["cloud-init", "schema", "--config-file", str(tmp_path / "user-data")])


def test_it_has_no_secret_except_the_throw_away_host_key() -> None:
    """Everybody who may read droplets can read it, and so can every process on the machine."""
    rest = render(SPEC).replace(json.dumps(HOST_KEY), "")
    assert not re.search(r"PRIVATE KEY|dop_v1_\w|secret_key|access_key|Bearer", rest)


def test_the_deadline_is_armed_first_and_needs_neither_python_nor_the_agent() -> None:
    """It writes the script that deletes the droplet, and the timer that runs it and then powers off."""
    assert next(iter(config())) == "bootcmd"
    script, _mask = config()["bootcmd"]
    assert not re.search(r"python|kedge-agent|/opt/kedge", script)
    assert script.index("/var/lib/kedge/end.sh <<") < script.index("kedge-deadline.timer <<")
    unit = re.search(r"kedge-deadline.service <<'EOF'[^\n]*\n(.*?)\nEOF", script, re.DOTALL)
    assert unit
    commands = [line for line in unit[1].splitlines() if line.startswith("ExecStart=")]
    assert ["end.sh" in commands[0], "poweroff" in commands[1], len(commands)] == [True, True, 2]


def test_a_machine_without_a_role_waits_for_its_files_over_ssh() -> None:
    """The user-data has no agent, and the boot downloads none."""
    unit = files()["/etc/systemd/system/kedge-boot.service"]
    assert "ConditionPathExists=/opt/kedge/supplied" in unit
    assert "bootstrap" not in unit
    assert not [path for path in files() if "kedge_agent" in path]
    assert "/opt/kedge/boot/supply.sh" in files()


def test_a_volume_is_found_by_its_name() -> None:
    """DigitalOcean's disks report the name as their serial number."""
    script = files()["/opt/kedge/boot/mount-volumes.sh"]
    assert "/dev/disk/by-id/*DO_Volume_" in script
    assert VOLUME.serial in script


def test_shellcheck_finds_no_mistake_in_the_scripts(tmp_path: Path) -> None:
    """It checks them as a machine gets them."""
    scripts = {Path(path).name: text for path, text in files().items() if path.endswith(".sh")}
    scripts |= {"deadline.sh": "#!/bin/sh\n" + config()["bootcmd"][0], "end.sh": SPEC.end_script}
    assert {"supply.sh", "end.sh", "deadline.sh", "prepare.sh"} <= set(scripts)
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        check(["shellcheck", str(tmp_path / name)])


def test_systemd_finds_no_mistake_in_the_units(tmp_path: Path) -> None:
    """Including the unit that waits for the agent."""
    units = {Path(path).name: text for path, text in files().items() if path.startswith("/etc/systemd/system/")}
    for name, text in units.items():
        (tmp_path / name).write_text(text.replace("/opt/kedge/bin/kedge-agent", "/bin/true").replace("/opt/kedge", "/"))
    check(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *(str(tmp_path / name) for name in units)])


def test_user_data_that_is_too_large_is_refused_before_it_is_sent() -> None:
    """The error has the sizes. 20 volumes fit easily."""
    many = tuple(replace(VOLUME, serial=f"volume-{number}") for number in range(20))
    assert len(render(replace(SPEC, volumes=many))) < BOOT.most_bytes / 2
    with pytest.raises(KedgeError, match="too long") as caught:
        render(replace(SPEC, authorized_key="x" * BOOT.most_bytes))
    assert str(BOOT.most_bytes) in caught.value.why
