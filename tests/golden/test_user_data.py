"""User-data: its text, what cloud-init, systemd and shellcheck report about it, and what it must not hold."""

from __future__ import annotations

import getpass
import gzip
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from orchestrator.adapters.cloud.boot.bootstrap_bundle import read_bootstrap
from orchestrator.adapters.cloud.boot.check import check_user_data
from orchestrator.adapters.cloud.boot.cloud_config import (
    BootSpec,
    BootVolume,
    Origin,
    plan_margin,
    render_cloud_config,
    render_files,
)
from orchestrator.adapters.cloud.boot.job_user import END_COMMAND
from orchestrator.adapters.cloud.boot.user_data import render_user_data
from orchestrator.adapters.providers.aws.traits import BOOT
from orchestrator.core.errors import KedgeError
from orchestrator.core.protocol.wire import BootOrder, MachineConfig

GOLDEN = Path(__file__).parent / "user_data"
SCHEMA = Path("/usr/lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFn8X5Cj/6orHR5/VFCM1r5Dx+I26k/tXQGWxY7y9LP2"
HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nthrown away\n-----END OPENSSH PRIVATE KEY-----\n"
MACHINE = MachineConfig(
    machine="digits-7f3a-1",
    run="digits-7f3a",
    provider="aws",
    root="/opt/kedge",
    created=0,
    deadline_at=0,
    usd_per_hour="0.526",
    store_url="s3://kedge-123456789012/runs?region=us-east-1",
    end_command=END_COMMAND,
)
PLAIN = BootSpec(
    machine=MACHINE,
    lifetime_seconds=3600,
    boot=BootOrder(),
    authorized_key=f"{KEY} kedge",
    host_private_key=HOST_KEY,
    host_public_key=KEY,
    agent_sha256="a1" * 32,
)
FULL = replace(
    PLAIN,
    boot=BootOrder(code="c0de", code_sha256="b2" * 32, start_sha256="c3" * 32),
    volumes=(
        BootVolume(serial="vol0123456789abcdef0", target="imagenet/train", origin=Origin.MADE),
        BootVolume(serial="vol0fedcba9876543210", target="it's old", origin=Origin.FOUND, device="/dev/xvdf"),
    ),
)
CLOSED = replace(PLAIN, ssh_from="198.51.100.7/32")
SPECS = {"plain": PLAIN, "full": FULL, "closed": CLOSED}
# The agent's modules have tests of their own; here they would only make the files long.
MODULES = {"__init__.py": '"""The agent."""\n', "bootstrap.py": "def main():\n\n    pass\n"}


def config_of(spec: BootSpec, modules: Mapping[str, str] = MODULES) -> dict[str, Any]:
    config = yaml.safe_load(render_cloud_config(spec, modules, disks=BOOT.disks))
    assert isinstance(config, dict)
    return config


def files_of(spec: BootSpec, modules: Mapping[str, str] = MODULES) -> dict[str, str]:
    return {entry["path"]: entry["content"] for entry in config_of(spec, modules)["write_files"]}


def unknown_keys(config: Mapping[str, Any], schema: Mapping[str, Any]) -> set[str]:
    """Return the top-level keys that none of cloud-init's modules reads; its own check lets them pass."""
    known = {key for part in schema["$defs"].values() for key in part.get("properties", {})}
    return set(config) - known


@pytest.mark.parametrize("name", SPECS)
def test_the_user_data_is_the_reviewed_one(name: str) -> None:
    """A change of the templates shows as a change of these files."""
    assert render_cloud_config(SPECS[name], MODULES, disks=BOOT.disks) == (GOLDEN / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", SPECS)
def test_cloud_init_finds_it_valid(tmp_path: Path, name: str) -> None:
    """With the agent's real modules in it."""
    path = tmp_path / "user-data"
    path.write_text(render_cloud_config(SPECS[name], read_bootstrap(), disks=BOOT.disks))
    done = run(["cloud-init", "schema", "--config-file", str(path)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Valid" in done.stdout


def test_every_key_is_one_that_cloud_init_knows() -> None:
    """cloud-init ignores a misspelt key silently, so this test looks itself."""
    schema = json.loads(SCHEMA.read_text())
    assert unknown_keys(config_of(FULL), schema) == set()
    assert unknown_keys({"boot_cmd": [], "runcmd": []}, schema) == {"boot_cmd"}


def test_it_fits_what_ec2_takes_with_the_real_modules_and_many_volumes() -> None:
    """With room left for the agent's modules to grow."""
    many = tuple(BootVolume(serial=f"vol{i:017x}", target=f"data/{i}", origin=Origin.MADE) for i in range(20))
    for spec in (PLAIN, FULL, replace(FULL, volumes=many)):
        content = render_user_data(spec, BOOT)
        print(len(content), "bytes of", BOOT.most_bytes, "with", len(spec.volumes), "volumes")
        assert len(content) < BOOT.most_bytes * 0.94
        assert gzip.decompress(content).startswith(b"#cloud-config\n")


def test_user_data_that_is_too_large_is_refused() -> None:
    """Before EC2 refuses it, and with the figures."""
    noise = "".join(
        subprocess.run(
            ["od", "-An", "-tx1", "-N60000", "/dev/urandom"], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    with pytest.raises(KedgeError, match="too long") as caught:
        render_user_data(replace(PLAIN, authorized_key=noise), BOOT)
    assert str(BOOT.most_bytes) in caught.value.why


def test_the_same_machine_gets_the_same_bytes() -> None:
    """RunInstances with the same ClientToken and other user-data is an error."""
    assert render_user_data(FULL, BOOT) == render_user_data(FULL, BOOT)


def test_where_a_cloud_closes_no_port_the_machine_does_before_anybody_is_let_in() -> None:
    """Right after the deadline, at every boot; without it nothing is created."""
    _, closing, mask = config_of(CLOSED)["bootcmd"]
    assert "nft -f -" in closing
    assert "network=198.51.100.7/32" in closing
    assert mask.startswith("systemctl --no-block mask --now apt-daily.timer ")
    open_to_all = render_cloud_config(PLAIN, MODULES, disks=BOOT.disks)
    with pytest.raises(KedgeError, match="nothing was created"):
        check_user_data(open_to_all.encode(), CLOSED, render_files(CLOSED, MODULES, BOOT.disks))


def test_the_deadline_comes_before_anything_else() -> None:
    """Bootcmd is cloud-init's first module that acts; what comes after it there only asks systemd, and doesn't wait."""
    config = config_of(FULL)
    assert next(iter(config)) == "bootcmd"
    script, mask = config["bootcmd"]
    assert mask.startswith("systemctl --no-block mask --now apt-daily.timer ")
    assert "kedge-deadline.timer" in script
    assert not re.search(r"python|kedge-agent|curl|/opt/kedge", script)


@pytest.mark.parametrize(("lifetime", "margin"), [(60, 3), (600, 30), (1200, 60), (86_400, 60)])
def test_the_agent_ends_the_machine_before_the_timer_does(lifetime: int, margin: int) -> None:
    """By a twentieth of the lifetime, and by a minute at most."""
    assert plan_margin(lifetime) == margin


def test_only_the_throw_away_host_key_is_private() -> None:
    """Whoever can read the instance's attributes can read user-data."""
    for text in (render_cloud_config(FULL, MODULES, disks=BOOT.disks), *files_of(FULL).values()):
        rest = text.replace(json.dumps(HOST_KEY), "")
        assert not re.search(r"PRIVATE KEY|AKIA|ASIA|secret|token|password", rest, re.IGNORECASE), rest


def test_nobody_logs_in_but_with_the_runs_key() -> None:
    """The image's own user stays, without a key; passwords and root are refused."""
    config = config_of(PLAIN)
    assert config["users"][0] == "default"
    assert [user["name"] for user in config["users"][1:]] == ["kedge", "job"]
    for user in config["users"][1:]:
        assert (user["ssh_authorized_keys"], user["lock_passwd"]) == ([PLAIN.authorized_key], True)
    assert (config["ssh_pwauth"], config["disable_root"], config["ssh_deletekeys"]) == (False, True, True)
    assert "ssh_authorized_keys" not in config


def test_the_jobs_user_has_three_requests_of_root_unless_its_file_asks_for_more() -> None:
    """It ends the machine, starts the run's unit, whose text is root's, and gets a scope; else it has sudo."""
    rights = config_of(PLAIN)["users"][2]["sudo"]
    ask = "/bin/sh /opt/kedge/boot/ask.sh"
    assert rights == f"ALL=(root) NOPASSWD: {ask} end, {ask} start, {ask} start *, {ask} scope *"
    assert config_of(replace(PLAIN, sudo=True))["users"][2]["sudo"] == "ALL=(ALL) NOPASSWD:ALL"
    assert "\nUser=job\n" in files_of(PLAIN)["/etc/systemd/system/kedge-run.service"]


def test_what_runs_as_the_jobs_user_may_pin_the_memory_of_its_network_cards() -> None:
    """In units, whose limits are systemd's, and over SSH, where PAM sets them. fact: memory-lock-limits."""
    files = files_of(PLAIN)
    theirs = [text for text in files.values() if "\nUser=job\n" in text]
    assert len(theirs) == 4
    assert all("\nLimitMEMLOCK=infinity\n" in text for text in theirs)
    assert "\njob - memlock unlimited\n" in files["/etc/security/limits.d/90-kedge.conf"]


@pytest.mark.parametrize("name", ["it's", 'say "hi"', "a: b # c", "{{ x }}", "ünï", "- x", "&'<>"])
def test_odd_values_survive_yaml_and_json(name: str) -> None:
    """Through YAML, and through JSON in it."""
    spec = replace(PLAIN, authorized_key=f"{KEY} {name}", machine=msgspec.structs.replace(MACHINE, usd_per_hour=name))
    assert config_of(spec)["users"][1]["ssh_authorized_keys"] == [f"{KEY} {name}"]
    assert json.loads(files_of(spec)["/opt/kedge/boot/machine.json"])["usd_per_hour"] == name


def test_the_bootstrap_modules_work_with_nothing_else_beside_them(tmp_path: Path) -> None:
    """As they come out of the YAML, and with the system's python."""
    modules = files_of(PLAIN, read_bootstrap())
    folder = tmp_path / "kedge_agent"
    folder.mkdir()
    for path, text in modules.items():
        if "/kedge_agent/" in path:
            module = folder / path.split("/kedge_agent/")[1]
            module.parent.mkdir(exist_ok=True)
            module.write_text(text)
    argv = ["/usr/bin/env", "python3", "-EsS", "-m", "kedge_agent.bootstrap", str(tmp_path), "00", getpass.getuser()]
    done = run(argv, cwd=tmp_path)
    assert done.returncode == 1
    ready = json.loads((tmp_path / "ready").read_text())
    assert "machine.json" in ready["phases"][0]["error"]


def test_shellcheck_accepts_the_scripts(tmp_path: Path) -> None:
    """As a machine gets them."""
    scripts = {path: text for path, text in files_of(FULL).items() if path.endswith(".sh")}
    assert len(scripts) == 6
    deadline, closing = (f"#!/bin/sh\n{script}" for script in config_of(CLOSED)["bootcmd"][:2])
    for path, text in {**scripts, "/deadline.sh": deadline, "/closing.sh": closing}.items():
        script = tmp_path / Path(path).name
        script.write_text(text)
        done = run(["shellcheck", str(script)])
        assert (done.returncode, done.stdout) == (0, ""), done.stdout


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Checked by `systemd-analyze verify`, with an agent that is there."""
    root = tmp_path / "kedge"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "kedge-agent").write_text("#!/bin/sh\n")
    (root / "bin" / "kedge-agent").chmod(0o755)
    spec = replace(FULL, machine=msgspec.structs.replace(MACHINE, root=str(root)))
    units = {Path(path).name: text for path, text in files_of(spec).items() if "/systemd/" in path}
    assert sorted(units) == [
        "kedge-boot.service",
        "kedge-run.service",
        "kedge-run@.service",
        "kedge-unready.service",
        "kedge-unready.timer",
        "kedge-watch.service",
    ]
    for name, text in units.items():
        (tmp_path / name.replace("@.", "@voxel.")).write_text(text)
    done = verify(tmp_path / name.replace("@.", "@voxel.") for name in units)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def verify(units: Iterable[Path]) -> subprocess.CompletedProcess[str]:
    return run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, units)])


def run(argv: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


DAMAGE: dict[str, Callable[[str], str]] = {
    "no deadline": lambda text: re.sub(r"bootcmd:.*?users:", "users:", text, flags=re.DOTALL),
    "a deadline after something else": lambda text: text.replace("bootcmd:\n", "bootcmd:\n  - sleep 600\n"),
    "a deadline that doesn't start": lambda text: text.replace(
        "restart kedge-deadline.timer", "stop kedge-deadline.timer"
    ),
    "another lifetime": lambda text: text.replace("3600", "360000"),
    "another user": lambda text: text.replace("name: kedge", "name: mallory"),
    "another key": lambda text: text.replace(KEY, KEY[::-1]),
    "another file": lambda text: text.replace("path: ", "path: /tmp"),
    "a control character": lambda text: text + "# \x1b\n",
    "a tab where YAML has none": lambda text: text.replace("runcmd:\n  -", "runcmd:\n\t-"),
    "no head": lambda text: text.replace("#cloud-config\n", "# cloud-config\n"),
    "a script in its place": lambda text: f"#!/bin/sh\n{text}",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_user_data_without_its_deadline_is_refused(damage: str) -> None:
    """Whatever damaged it: read as cloud-init reads it, it must arm the deadline, and let kedge in."""
    text = render_cloud_config(PLAIN, MODULES, disks=BOOT.disks)
    files = render_files(PLAIN, MODULES, BOOT.disks)
    check_user_data(text.encode(), PLAIN, files)
    check_user_data(gzip.compress(text.encode()), PLAIN, files)
    for content in (DAMAGE[damage](text).encode(), gzip.compress(DAMAGE[damage](text).encode())):
        with pytest.raises(KedgeError, match="nothing was created"):
            check_user_data(content, PLAIN, files)
    with pytest.raises(KedgeError, match="nothing was created"):
        check_user_data(gzip.compress(text.encode())[:-20], PLAIN, files)
