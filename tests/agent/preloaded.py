"""Imported by a preload server: the whole agent, under the name that it has on a machine."""

import importlib
import importlib.util
import sys
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "orchestrator" / "agent"
_NO_MODULES = ("__main__.py", "torch_check.py", "facts.py")
"""Programs of their own."""


def _import_agent() -> None:
    spec = importlib.util.spec_from_file_location(
        "kedge_agent", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    assert spec is not None
    sys.modules["kedge_agent"] = importlib.util.module_from_spec(spec)
    for path in sorted(_FOLDER.rglob("*.py")):
        if path.name not in _NO_MODULES:
            importlib.import_module(".".join(("kedge_agent", *path.relative_to(_FOLDER).with_suffix("").parts)))


_import_agent()
