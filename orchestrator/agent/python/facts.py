"""Describes the Python that runs it: `python -IB facts.py` prints its version, paths and packages as JSON.

A standalone program for any Python of the image, 3.8 or later: it imports only the standard library.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import site
import sys
from typing import Any

TORCHES = ("torch", "torchvision", "torchaudio")
"""Packages that are built for one version of torch and of CUDA or ROCm, and must be replaced together."""


def main() -> int:
    """Print one JSON object on standard output."""
    # In a virtual environment this is its base Python.
    base = getattr(sys, "_base_executable", None) or sys.executable
    is_virtual = sys.prefix != sys.base_prefix
    facts = {
        "version": ".".join(str(number) for number in sys.version_info[:3]),
        "executable": base,
        "sites": [path for path in site.getsitepackages([sys.prefix]) if os.path.isdir(path)] if is_virtual else [],  # noqa: PTH112 - this Python may be an old one
        "sees_system": not is_virtual or sys.base_prefix in site.PREFIXES,
        "has_pip": importlib.util.find_spec("pip") is not None,
        "scripts": _find_scripts(),
        "torches": {name: found for name in TORCHES if (found := _describe(name))},
    }
    print(json.dumps(facts))
    return 0


def _find_scripts() -> dict[str, str]:
    """Return the packages' scripts: name -> module:function."""
    found: Any = importlib.metadata.entry_points()
    group = found.select(group="console_scripts") if hasattr(found, "select") else found.get("console_scripts", ())
    # If there are several with one name, the first belongs to the package that is imported.
    return {script.name: script.value.partition("[")[0].strip() for script in reversed(tuple(group))}


def _describe(name: str) -> dict[str, Any]:
    """Return a package's normalised version and the time of its installation; empty if it isn't installed."""
    try:
        distribution = importlib.metadata.distribution(name)
        folder = str(getattr(distribution, "_path", ""))
        return {"version": distribution.version, "installed": os.stat(folder).st_mtime if folder else 0.0}  # noqa: PTH116 - as above
    except (importlib.metadata.PackageNotFoundError, OSError):
        return {}


if __name__ == "__main__":
    sys.exit(main())
