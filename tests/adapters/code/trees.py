"""Describe a folder's content, so that tests can compare folders."""

from __future__ import annotations

from pathlib import Path

Picture = dict[str, tuple[str, object, bool]]


def picture(root: Path) -> Picture:
    """Map every path below a root except .git to its kind, its content and whether it is executable."""
    paths = [path for path in root.resolve().rglob("*") if path.is_symlink() or not path.is_dir()]
    named = ((str(path.relative_to(root.resolve())), path) for path in paths)
    return {name: _describe(path) for name, path in named if ".git" not in name.split("/")}


def _describe(path: Path) -> tuple[str, object, bool]:
    if path.is_symlink():
        return "link", str(path.readlink()), False
    return "file", path.read_bytes(), bool(path.stat().st_mode & 0o100)
