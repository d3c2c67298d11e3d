"""Finds and runs the GPU vendors' own programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_TIMEOUT_SECONDS = 20.0
# ROCm up to 7.2 is installed in /opt/rocm, 7.12 and newer in a folder core-7.x or core-10.x below it. ROCm's packages
# link one to the other, its tarballs don't. fact: rocm-core-folder
_FOLDERS = ("opt/rocm/bin", "opt/rocm/core*/bin", "opt/rocm-*/bin")


def find_tool(name: str, root: Path = Path("/")) -> str | None:
    """Return the path of a vendor's program; None if it isn't installed."""
    folders = map(str, find_newest_first(root, _FOLDERS))
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def ask_tool(argv: Sequence[str], root: Path = Path("/"), *, timeout: float = _TIMEOUT_SECONDS) -> str:
    """Return the output of a vendor's program; empty if it isn't installed, fails, or hangs."""
    program = find_tool(argv[0], root)
    if program is None:
        return ""
    try:
        answer = subprocess.run(
            [program, *argv[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.decode(errors="replace")


def find_newest_first(root: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Yield the paths that match each pattern in turn, highest version first: core-7.12 comes before core-7.9."""

    def version_of(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", str(path.relative_to(root)))]

    for pattern in patterns:
        yield from sorted(root.glob(pattern), key=version_of, reverse=True)
