"""A stand-in for the agent: it installs its launcher, and its watch only waits.

A machine needs no more of its agent. The real agent has its own tests.
"""

from __future__ import annotations

import io
import tarfile

_MAIN = """
import os, sys, time
if sys.argv[1] == "install":
    root = sys.argv[3]
    launcher = os.path.join(root, "bin", "kedge-agent")
    with open(launcher, "w") as file:
        file.write('#!/bin/sh\\nPYTHONPATH="%s/agent" exec "%s" -m kedge_agent "$@"\\n' % (root, sys.executable))
    os.chmod(launcher, 0o755)
else:
    time.sleep(1000)
"""
_BROKEN = "import sys; sys.exit('no agent today')"


def standin_agent() -> bytes:
    """Pack an agent that does nothing."""
    return _pack(_MAIN)


def broken_agent() -> bytes:
    """Pack an agent that can't be installed."""
    return _pack(_BROKEN)


def _pack(main: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in (("__init__", ""), ("__main__", main)):
            member = tarfile.TarInfo(f"kedge_agent/{name}.py")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()
