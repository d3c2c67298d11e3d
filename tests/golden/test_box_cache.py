"""The box's own tests may be skipped while nothing of the box has changed: what counts as the box is complete."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.box_cache import COVERED

ROOT = Path(__file__).parents[2]


def test_every_module_that_the_box_imports_counts_as_the_box() -> None:
    """tests/support/box_cache.py hashes it."""
    covered = [ROOT / name for name in COVERED]
    left = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in (ROOT / "tests/cloudbox").rglob("*.py")
        for module in _imports(path)
        if (file := _file_of(module)) and not any(file == one or one in file.parents for one in covered)
    }
    assert left == set()


def _imports(path: Path) -> list[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return plain + [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]


def _file_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)
