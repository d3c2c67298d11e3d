"""Small data sets to try a recipe with, in exactly the format of its real data, with structure that can be learnt.

A module here generates data for the recipe with its name: `generate(folder, count=, seed=)`. NumPy and pillow only.
"""

from __future__ import annotations

import difflib
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Protocol

from trainer import PROGRAM
from trainer.base.errors import BadRequestError


class Generate(Protocol):
    """Writes a data set."""

    def __call__(self, folder: Path, *, count: int | None, seed: int) -> None:
        """Write `count` samples (None: the generator's default) into an empty folder; the same for the same seed."""


def list_generators() -> list[str]:
    """List the names that `generate_data` knows."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def generate_data(name: str, folder: Path, *, count: int | None = None, seed: int = 0) -> None:
    """Write a data set for a recipe into a new or empty folder.

    Raises:
        BadRequestError: there is no such generator, or the folder has something in it.
    """
    names = list_generators()
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        raise BadRequestError(
            f"no generator is called {name}",
            why=f"there are generators for {', '.join(names)}",
            fix=f"did you mean {PROGRAM} generate {nearest[0] if nearest else 'NAME'} FOLDER?",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadRequestError(
            f"{folder} is not an empty folder",
            why="what is in it would be mixed with the new data",
            fix="name a folder that doesn't exist yet",
        )
    folder.mkdir(parents=True, exist_ok=True)
    generate: Generate = import_module(f"{__name__}.{name}").generate
    generate(folder, count=count, seed=seed)
