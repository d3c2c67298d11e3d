"""A test's machine equals one that has installed its agent."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.agent.box import copy_installed, install


def test_a_copied_agent_is_an_installed_one(tmp_path: Path) -> None:
    """The same files with the same modes, compiled, and launchers with the path of their own root."""
    root = tmp_path / "a 'machine' 1"
    install(root)
    installed = _content(root)
    shutil.rmtree(root)
    root.mkdir()
    copy_installed(root)
    assert _content(root) == installed
    assert any(name.endswith(".pyc") for name in installed)


def _content(root: Path) -> dict[str, tuple[int, bytes]]:
    # A compiled file starts with its source's modification time, and contains the path where it was compiled.
    return {
        str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes()[: 16 if path.suffix == ".pyc" else None])
        for path in root.rglob("*")
        if path.is_file()
    }
