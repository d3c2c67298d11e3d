"""`install`: write the launchers, and compile the agent. Whatever boots the machine calls it once."""

from __future__ import annotations

import argparse
import compileall
import shlex
import sys
from pathlib import Path

from .files import write_atomically
from .layout import Layout

# For sh the first lines start the interpreter, whose path may be long or hold spaces, which `#!` can't take;
# for Python they are a text. -I and -S: nothing of the command's environment leaks in, and it starts faster.
_LAUNCHER = """#!/bin/sh
''''exec {python} -IS "$0" "$@"
'''
import sys

sys.path.insert(0, {agent!r})

from {package}.main import main

sys.exit(main([{root}, {verb}*sys.argv[1:]]))
"""

_FOLDER = Path(__file__).resolve().parent


def execute(layout: Layout, _args: argparse.Namespace) -> int:
    """Write kedge-agent and kedge-cost, bound to this root and to the Python that runs this."""
    layout.launcher.parent.mkdir(exist_ok=True)
    for name, verb in (("kedge-agent", ""), ("kedge-cost", '"cost", ')):
        write_atomically(layout.launcher.parent / name, _render(layout, verb).encode(), mode=0o755)
    # By force: every archive carries the same times, by which a newer one would be taken for the older.
    compileall.compile_dir(_FOLDER, maxlevels=1, quiet=2, force=True)
    return 0


def _render(layout: Layout, verb: str) -> str:
    return _LAUNCHER.format(
        python=shlex.quote(sys.executable),
        agent=str(_FOLDER.parent),
        package=_FOLDER.name,
        root=repr(f"--root={layout.root}"),
        verb=verb,
    )
