"""`install`: writes the launchers, and compiles the agent. Called once at boot."""

from __future__ import annotations

import argparse
import compileall
import shlex
import sys
from pathlib import Path

from ..base.files import write_atomically
from ..base.layout import Layout

# For sh the first lines start the interpreter, whose path may be too long for `#!` or have spaces; for Python they are
# a string. -I and -S keep the command's environment out, and start faster.
_LAUNCHER = """#!/bin/sh
''''exec {python} -IS "$0" "$@"
'''
import sys

sys.path.insert(0, {agent!r})

from {package}.main import main

sys.exit(main([{root}, {verb}*sys.argv[1:]]))
"""

_FOLDER = Path(__file__).resolve().parents[1]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `--root`, which is also accepted before the verb."""
    parser.add_argument("--root", type=Path, help="the machine's root")


def execute(given: Layout, args: argparse.Namespace) -> int:
    """Write kedge-agent and kedge-cost, bound to this root and to the current Python."""
    layout = Layout(args.root.absolute()) if args.root else given
    layout.launcher.parent.mkdir(exist_ok=True)
    for name, verb in (("kedge-agent", ""), ("kedge-cost", '"cost", ')):
        write_atomically(layout.launcher.parent / name, _render(layout, verb).encode(), mode=0o755)
    # Forced, because all archives have the same timestamps, so that a newer one would look unchanged.
    compileall.compile_dir(_FOLDER, maxlevels=3, quiet=2, force=True)
    return 0


def _render(layout: Layout, verb: str) -> str:
    return _LAUNCHER.format(
        python=shlex.quote(sys.executable),
        agent=str(_FOLDER.parent),
        package=_FOLDER.name,
        root=repr(f"--root={layout.root}"),
        verb=verb,
    )
