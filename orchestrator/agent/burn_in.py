"""`burn-in`: do this machine's GPUs compute and remember what they should? Asked before anything is trained on them.

Every GPU is visible, a bf16 product agrees with one in float64 made by the CPU, and half of the free memory holds
what was written to it; `torchcheck.py` says within which tolerance. The verdict is one line on standard error, and
`<root>/burn-in.json`, which standard output repeats.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from .errors import AgentError
from .files import write_json
from .layout import Layout
from .torchenv import CHECK, environment, read_torch

LIMIT_SECONDS = 300.0
"""For one GPU; an MI300X is expected to take a few seconds, and eight are checked one after the other."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add how many GPUs there must be, and what to check instead of them."""
    parser.add_argument("--gpus", type=int, default=0, help="how many GPUs the machine must have; 0: nothing to check")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: check that instead")
    parser.add_argument("--python", default="", help="whose torch; else the one that `boot` has found")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds that each device may take")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Check and print the verdict; 1 where something is wrong."""
    verdict = burn_in(layout, args.gpus, device=args.device, python=args.python, limit=args.limit)
    print(json.dumps(verdict))
    sys.stderr.write(f"burn-in: {render_line(verdict)}\n")
    return 0 if verdict["ok"] else 1


def require_burn_in(layout: Layout, gpus: int) -> None:
    """Check the machine's GPUs.

    Raises:
        AgentError: something is wrong with one of them.
    """
    verdict = burn_in(layout, gpus)
    sys.stderr.write(f"kedge-agent, burn-in: {render_line(verdict)}\n")
    if not verdict["ok"]:
        raise AgentError("the GPUs did not pass their burn-in", why=str(verdict["error"]))


def burn_in(
    layout: Layout, gpus: int, *, device: str = "cuda", python: str = "", limit: float = LIMIT_SECONDS
) -> dict[str, Any]:
    """Check, write the verdict down and return it: `ok`, `error`, `skipped`, `torch`, and figures of each of `devices`.

    Args:
        layout: the machine's folder.
        gpus: how many there must be; with none, and no CPU asked for, nothing is checked.
        device: `cuda`, which is ROCm's name too, or `cpu`.
        python: whose torch; else the one that was found at boot.
        limit: seconds that each device may take.
    """
    if gpus <= 0 and device == "cuda":
        verdict: dict[str, Any] = {"ok": True, "error": "", "skipped": "this machine is not sold with a GPU"}
    else:
        found = read_torch(layout)
        verdict = _check(python or (found.python if found else ""), gpus, device, limit * max(1, gpus))
    write_json(layout.note("burn-in"), verdict)
    return verdict


def render_line(verdict: dict[str, Any]) -> str:
    """Say in one line how it went."""
    if verdict.get("skipped"):
        return f"skipped: {verdict['skipped']}"
    if not verdict["ok"]:
        return f"failed: {verdict['error']}"
    devices = verdict["devices"]
    worst = max(device["matmul_error"] for device in devices)
    memory = sum(device["memory_gib"] for device in devices)
    speeds = "/".join(f"{device['tflops']:g}" for device in devices)
    return (
        f"passed: {len(devices)} x {devices[0].get('name', devices[0]['device'])}, torch {verdict['torch']}, "
        f"bf16 off by {worst:.3g} (limit {devices[0]['tolerance']:g}), {memory:g} GiB read back, {speeds} TFLOP/s"
    )


def _check(python: str, gpus: int, device: str, limit: float) -> dict[str, Any]:
    if not python:
        return _failed("no GPU is visible to a driver, or no torch that sees one is known")
    argv = [python, "-IB", str(CHECK), "check", "--gpus", str(gpus), "--device", device]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False, env=environment()
        )
    except subprocess.TimeoutExpired:
        return _failed(f"the check hung: it was given {limit:g} s")
    except OSError as err:
        return _failed(str(err))
    try:
        return {"skipped": "", **json.loads(done.stdout.splitlines()[-1])}
    except (ValueError, IndexError, TypeError):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        # A driver that fails may end the process by a signal, without a word.
        return _failed(f"the check ended with {done.returncode}: {said[-1][:300] if said else 'it said nothing'}")


def _failed(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error, "skipped": "", "devices": []}
