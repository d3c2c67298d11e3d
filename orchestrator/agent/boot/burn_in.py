"""`burn-in`: checks the machine's GPUs before training: all visible, correct products, working memory.

Every GPU must be visible, a bf16 product must agree with a float64 product from the CPU (`torch_check.py` has the
tolerance), and half of the free memory must read back what was written. The result is one line on standard error, and
JSON in `<root>/burn-in.json` and on standard output.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from ..base.errors import AgentError
from ..base.files import write_json
from ..base.layout import Layout
from ..python.torch_env import CHECK, environment, read_torch

LIMIT_SECONDS = 300.0
"""The limit for each GPU; they are checked one after the other. An MI300X is expected to take a few seconds."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--gpus", type=int, default=0, help="how many GPUs the machine must have; 0: nothing to check")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: check the CPU instead")
    parser.add_argument("--python", default="", help="the Python with torch (default: the one that `boot` found)")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds that each device may take")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Check and print the result; 1 if something is wrong."""
    verdict = burn_in(layout, args.gpus, device=args.device, python=args.python, limit=args.limit)
    print(json.dumps(verdict))
    sys.stderr.write(f"burn-in: {render_line(verdict)}\n")
    return 0 if verdict["ok"] else 1


def require_burn_in(layout: Layout, gpus: int) -> None:
    """Check the machine's GPUs.

    Raises:
        AgentError: a GPU fails the check.
    """
    verdict = burn_in(layout, gpus)
    sys.stderr.write(f"kedge-agent, burn-in: {render_line(verdict)}\n")
    if not verdict["ok"]:
        raise AgentError("the GPUs failed the burn-in", why=str(verdict["error"]))


def burn_in(
    layout: Layout, gpus: int, *, device: str = "cuda", python: str = "", limit: float = LIMIT_SECONDS
) -> dict[str, Any]:
    """Check, record the result and return it: `ok`, `error`, `skipped`, `torch`, and figures for each of `devices`.

    Args:
        layout: the machine's folder.
        gpus: how many there must be; 0 checks nothing, unless `device` is `cpu`.
        device: `cuda`, which is ROCm's name too, or `cpu`.
        python: the Python with torch; empty for the one that was found at boot.
        limit: seconds that each device may take.
    """
    if gpus <= 0 and device == "cuda":
        verdict: dict[str, Any] = {"ok": True, "error": "", "skipped": "this machine has no GPU"}
    else:
        found = read_torch(layout)
        verdict = _check(python or (found.python if found else ""), gpus, device, limit * max(1, gpus))
    write_json(layout.note("burn-in"), verdict)
    return verdict


def render_line(verdict: dict[str, Any]) -> str:
    """Render the result as one line."""
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
        return _failed("no driver shows a GPU, or no torch that sees one was found")
    argv = [python, "-IB", str(CHECK), "check", "--gpus", str(gpus), "--device", device]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False, env=environment()
        )
    except subprocess.TimeoutExpired:
        return _failed(f"the check timed out after {limit:g} s")
    except OSError as err:
        return _failed(str(err))
    try:
        return {"skipped": "", **json.loads(done.stdout.splitlines()[-1])}
    except (ValueError, IndexError, TypeError):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        # A failing driver may end the process by a signal, without a message.
        return _failed(f"the check ended with {done.returncode}: {said[-1][:300] if said else 'no output'}")


def _failed(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error, "skipped": "", "devices": []}
