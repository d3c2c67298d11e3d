"""A machine's own firewall, loaded into the kernel: two network namespaces connected by a virtual cable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.adapters.host.templates import render

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="namespaces need root on Linux")

WORLD = r"""
set -eu
unshare --net sleep 60 &
machine=$!
trap 'kill $machine' EXIT
in_machine() { nsenter --net=/proc/$machine/ns/net "$@"; }
until [ "$(readlink /proc/$machine/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add laptop type veth peer name machine netns $machine
for address in 192.0.2.1/24 192.0.2.2/24 2001:db8::1/64 2001:db8::2/64; do
    ip address add $address dev laptop nodad
done
ip link set laptop up
in_machine sh -eu <<'EOF'
ip link set lo up
for address in 192.0.2.9/24 2001:db8::9/64; do ip address add $address dev machine nodad; done
ip link set machine up
EOF
for times in $TIMES; do in_machine sh "$SCRIPT"; done
in_machine "$PYTHON" -c '
import socket, threading, time
for port in (22, 8888):
    server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    threading.Thread(target=lambda server=server: [server.accept() for _ in range(9)], daemon=True).start()
socket.create_connection(("127.0.0.1", 8888), timeout=5).close()
print("listening", flush=True)
time.sleep(60)
' >"$OUTPUT" &
until grep -q listening "$OUTPUT"; do sleep 0.01; done
"$PYTHON" -c '
import socket, subprocess, sys
for host in ("192.0.2.9", "2001:db8::9"):
    for own in (("192.0.2.1", "192.0.2.2") if "." in host else ("2001:db8::1", "2001:db8::2")):
        for port in (22, 8888):
            try:
                socket.create_connection((host, port), timeout=0.3, source_address=(own, 0)).close()
                print(own, port)
            except OSError:
                pass
sys.stdout.flush()
with socket.create_server(("192.0.2.1", 5000)):
    ask = "import socket; socket.create_connection((\"192.0.2.1\", 5000), timeout=5); print(\"it reaches others\")"
    subprocess.run(["nsenter", f"--net=/proc/{sys.argv[1]}/ns/net", sys.executable, "-c", ask], check=True)
' $machine
"""


def list_reachable_ports(tmp_path: Path, network: str, times: int = 1) -> set[str]:
    """Load the firewall this many times; return which address reaches which port."""
    script, output = tmp_path / "close.sh", tmp_path / "output"
    script.write_text(render("boot/close-ssh.sh.j2", network=network))
    output.touch()
    env = {"SCRIPT": str(script), "TIMES": " ".join("x" * times), "OUTPUT": str(output), "PYTHON": sys.executable}
    done = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", WORLD],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("network", "allowed"),
    [
        ("192.0.2.1/32", {"192.0.2.1 22"}),
        ("2001:db8::2/128", {"2001:db8::2 22"}),
    ],
)
def test_one_network_reaches_ssh_and_nobody_reaches_anything_else(
    tmp_path: Path, network: str, allowed: set[str]
) -> None:
    """A reboot loads it again, with the same result. Answers to the machine's own connections come through."""
    assert list_reachable_ports(tmp_path, network, times=2) == {*allowed, "it reaches others"}


def test_sshd_does_not_run_if_no_firewall_can_be_loaded(tmp_path: Path) -> None:
    """A machine starts closed, whatever its image lacks.

    Units are masked where that works. Running units are stopped even if masking fails, as it does for an alias of
    Ubuntu 22.04.
    """
    systemctl = f'echo "$@" >>{tmp_path}/asked; [ "$1" != mask ]'
    for name, text in {"nft": "exit 1", "systemctl": systemctl}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = render("boot/close-ssh.sh.j2", network="192.0.2.1/32")
    subprocess.run(["sh", "-c", script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True, timeout=30)
    assert (tmp_path / "asked").read_text().splitlines() == [
        "mask ssh.service ssh.socket",
        "--no-block stop ssh.socket ssh.service sshd.service",
    ]
