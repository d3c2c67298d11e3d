"""A repository of a known size that compresses like code: slices of Python's own library."""

from __future__ import annotations

import random
import subprocess
import sysconfig
import zlib
from pathlib import Path

FILES = 2_000
BYTES = 22_000_000
_FOLDERS = 50
_SEED = 22


def write_corpus(root: Path) -> None:
    """Write the files and commit them; the same Python makes the same corpus."""
    lines = _library()
    at = 0
    for number, size in enumerate(_sizes()):
        path = root / f"package_{number % _FOLDERS:02}" / f"module_{number:04}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        taken, at = _take(lines, at, size)
        path.write_text(f'"""Module {number} of the corpus."""\n{taken}')
    _git(root, "init", "--quiet")
    _git(root, "add", ".")
    _git(root, "-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "--quiet", "-m", "the corpus")


def describe_corpus(root: Path) -> str:
    """Describe its size and how well it compresses."""
    files = sorted(root.rglob("*.py"))
    content = b"".join(path.read_bytes() for path in files)
    ratio = len(content) / len(zlib.compress(content, 6))
    return f"corpus: {len(files)} Python files, {len(content) / 1e6:.1f} MB, {ratio:.1f}x with gzip"


def _library() -> list[str]:
    folder = Path(sysconfig.get_path("stdlib"))
    paths = sorted(path for path in folder.rglob("*.py") if "site-packages" not in path.parts)
    return [line for path in paths for line in path.read_text(errors="replace").splitlines(keepends=True)]


def _sizes() -> list[float]:
    """Draw sizes: many small files, a few large ones."""
    dice = random.Random(_SEED)
    sizes = [dice.lognormvariate(0, 1) for _ in range(FILES)]
    return [size * BYTES / sum(sizes) for size in sizes]


def _take(lines: list[str], at: int, size: float) -> tuple[str, int]:
    """Take lines until they have this many characters; starts again at the end of the library."""
    taken: list[str] = []
    length = 0
    while length < size:
        taken.append(lines[at % len(lines)])
        length += len(taken[-1])
        at += 1
    return "".join(taken), at


def _git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(root), *words], check=True, stdin=subprocess.DEVNULL)
