"""Runs on a machine: cloud-init's four stages, from one process that has imported cloud-init once.

cloud-init 24.3 and later work this way (`cloud-init-main.service`). Debian 12 has 22.4, which starts Python for each
stage; most of the CPU time of a stage is imports and the parsing of YAML.

The service of a stage writes a line to the named pipe ASK: its process id, and the arguments of cloud-init. The stage
is a forked process in the control group of that service. It writes its status to the named pipe `<ASK>.<process id>`.

YAML is parsed by libyaml. That cloud-init's own parser reads kedge's user-data as it is meant is checked before each
launch (`orchestrator/adapters/cloud/boot/check_user_data.py`).
"""

import os
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

ASK = Path("/run/cloud-init-stages")
_GROUPS = Path("/sys/fs/cgroup")
_CONFIG = Path("/etc/cloud/cloud.cfg")
# Modules that a stage imports late, besides those that the configuration names.
_LATER = ("jsonschema", "cloudinit.distros.debian", "cloudinit.sources.DataSourceNoCloud")


def main() -> None:
    """Run stages until the last one has ended."""
    if not ASK.is_fifo():
        os.mkfifo(ASK, 0o600)
    # Open for writing as well: without a writer, a read would return at once.
    with os.fdopen(os.open(ASK, os.O_RDWR), "r") as asked:
        _say_ready()
        _import_cloud_init()
        while True:
            client, *arguments = asked.readline().split()
            child = os.fork()
            if child == 0:
                _run_stage(int(client), arguments)
            os.waitpid(child, 0)
            if arguments[-1] == "--mode=final":
                return


def _say_ready() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(b"READY=1", os.environ.pop("NOTIFY_SOCKET"))


def _import_cloud_init() -> None:
    import yaml

    yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc,assignment]
    sys.argv[0] = "/usr/bin/cloud-init"
    import_module("cloudinit.cmd.main")
    config = yaml.safe_load(_CONFIG.read_text())
    modules = [name for key, names in config.items() if key.endswith("_modules") for name in names]
    for name in [*_LATER, *(f"cloudinit.config.cc_{module.replace('-', '_')}" for module in modules)]:
        with suppress(ImportError):
            import_module(name)


def _run_stage(client: int, arguments: list[str]) -> None:
    """Run a stage in this process, and end the process."""
    status = 1
    # The service waits until it is closed, which it is however this process ends.
    with Path(f"{ASK}.{client}").open("w") as answer:
        try:
            _join_group(client)
            sys.argv[1:] = arguments
            status = import_module("cloudinit.cmd.main").main()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            answer.write(f"{status}\n")
            answer.flush()
            os._exit(0)


def _join_group(client: int) -> None:
    for line in Path(f"/proc/{client}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root = _GROUPS if (_GROUPS / "cgroup.procs").exists() else _GROUPS / "unified"
        elif controllers == "name=systemd":
            root = _GROUPS / "systemd"
        else:
            continue
        (root / path.lstrip("/") / "cgroup.procs").write_text("0")


if __name__ == "__main__":
    main()
