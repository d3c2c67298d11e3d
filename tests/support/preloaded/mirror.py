"""Prints a description of its own process as JSON: `python -m tests.support.preloaded.mirror WORD...`."""

from __future__ import annotations

import json
import locale
import os
import resource
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

_FLAGS = ("optimize", "dont_write_bytecode", "no_site", "isolated", "safe_path", "utf8_mode", "hash_randomization")
_SIGNALS = ("SigBlk", "SigIgn", "SigCgt")


def _describe_stream(name: str) -> list[Any]:
    stream = getattr(sys, name)
    about = [stream.name, stream.encoding, stream.errors, stream.mode, stream.fileno(), stream.isatty()]
    return [*about, stream.line_buffering, stream.write_through, stream is getattr(sys, f"__{name}__")]


def look() -> dict[str, Any]:
    """Describe this process, without values that differ between any two processes."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    umask = os.umask(0)
    os.umask(umask)
    return {
        "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "orig_argv": sys.orig_argv,
        "command line": Path("/proc/self/cmdline").read_bytes().decode().split("\0"),
        "environment": dict(os.environ),
        "environment in /proc": sorted(Path("/proc/self/environ").read_bytes().decode().split("\0")),
        "folder": str(Path.cwd()),
        "umask": umask,
        "parent": os.getppid(),
        "leads a session": os.getsid(0) == os.getpid(),
        "leads a group": os.getpgid(0) == os.getpid(),
        "session or group of the parent": [
            os.getsid(0) == os.getsid(os.getppid()),
            os.getpgrp() == os.getpgid(os.getppid()),
        ],
        "signals": [status[name].strip() for name in _SIGNALS],
        "handlers": [str(signal.getsignal(number)).split(" at 0x")[0] for number in (signal.SIGINT, signal.SIGTERM)],
        "files": sorted(path.name for path in Path("/proc/self/fd").iterdir() if path.exists()),
        "streams": [_describe_stream(name) for name in ("stdin", "stdout", "stderr")],
        "limits": [resource.getrlimit(kind) for kind in range(16)],
        "priority": os.nice(0),
        "path": sys.path,
        "flags": [getattr(sys.flags, name) for name in _FLAGS],
        "locale": locale.setlocale(locale.LC_ALL),
        "threads": threading.active_count(),
        "temporary": tempfile.gettempdir(),
        "main": __name__,
    }


if __name__ == "__main__":
    print(json.dumps(look()))
