"""`install`: write the launchers. Whatever boots the machine calls it once."""

from __future__ import annotations

import argparse
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


def execute(layout: Layout, _args: argparse.Namespace) -> int:
    """Write kedge-agent and kedge-cost, bound to this root and to the Python that runs this."""
    layout.prepare()
    layout.launcher.parent.mkdir(exist_ok=True)
    for name, verb in (("kedge-agent", ""), ("kedge-cost", '"cost", ')):
        write_atomically(layout.launcher.parent / name, _render(layout, verb).encode(), mode=0o755)
    return 0


def _render(layout: Layout, verb: str) -> str:
    here = Path(__file__).resolve().parent
    return _LAUNCHER.format(
        python=shlex.quote(sys.executable),
        agent=str(here.parent),
        package=here.name,
        root=repr(f"--root={layout.root}"),
        verb=verb,
    )
