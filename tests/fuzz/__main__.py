"""Fuzz targets for some time, and print the results: `python -m tests.fuzz [TARGET ...] [--seconds 600]`.

Where atheris isn't available, it tries seeded mutations instead, different ones each time.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.running import Findings, bounded_memory, seeded, working_folder
from tests.fuzz.targets import NAMES, load

_STATUS = re.compile(rb"#(\d+)\s.*?cov: (\d+) ft: (\d+) corp: (\d+)")
_TRIED_AT_ONCE = 50


def main() -> int:
    """Fuzz one target after the other; return 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", default=NAMES, choices=NAMES, metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "kedge-findings")
    args = parser.parse_args()
    print("| surface | engine | time | executions | executions/s | coverage, paths | corpus | findings |", flush=True)
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found = 0
    for name in args.targets:
        folder = args.findings / name
        folder.mkdir(parents=True, exist_ok=True)
        known = {path.name for path in folder.iterdir()}
        begun = time.monotonic()
        fuzz = _guided if find_spec("atheris") else _blind
        engine, executions, coverage, corpus = fuzz(name, args.seconds, folder)
        took = time.monotonic() - begun
        new = {path.name for path in folder.iterdir()} - known
        row = (name, engine, f"{took:.0f} s", f"{executions:,}", f"{executions / took:.0f}", coverage, corpus, len(new))
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        for finding in sorted(new):
            print(f"  {folder / finding}", file=sys.stderr)
        found += len(new)
    return int(bool(found))


def _guided(name: str, seconds: int, findings: Path) -> tuple[str, int, str, str]:
    argv = [sys.executable, "-m", "tests.fuzz.guided", name, str(seconds), str(findings)]
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    reached = _STATUS.findall(done.stderr)
    if done.returncode != 0 or not reached:
        (findings / "ended-early.txt").write_bytes(done.stderr[-100_000:])
    executions, edges, features, kept = (int(number) for number in reached[-1]) if reached else (0, 0, 0, 0)
    return "atheris", executions, f"{edges:,} edges, {features:,} features", f"{kept:,}"


def _blind(name: str, seconds: int, findings: Path) -> tuple[str, int, str, str]:
    target = load(name)
    look = Findings(target, findings).look
    until = time.monotonic() + seconds
    start = time.time_ns()
    count = 0
    with working_folder() as folder, bounded_memory():
        while time.monotonic() < until:
            for data in seeded(target, count=_TRIED_AT_ONCE, start=start + count):
                look(data, folder)
            count += _TRIED_AT_ONCE
    return "seeded", count, "unknown", f"{len(target.seeds()):,}"


if __name__ == "__main__":
    sys.exit(main())
