"""Checks of data sets before they are uploaded: what is missing, truncated, mis-shaped, misnamed or unlabelled.

A module here checks the data of the recipe with its name: `check(folder, found)`. Standard library only: they run on a
laptop without torch or NumPy. They read headers and sizes, not contents, and report all problems, not only the first.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from trainer import PROGRAM
from trainer.base.errors import BadRequestError
from trainer.checks._findings import Findings

Check = Callable[[Path, Findings], None]


def list_checks() -> list[str]:
    """List the names that `check_data` knows."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def check_data(name: str, folder: Path, *, max_samples: int = 0, only: str = "auto") -> Findings:
    """Check the data of a recipe.

    Args:
        name: the recipe's.
        folder: what its `data.folder` names.
        max_samples: the run will use only the first so many samples; 0: all. All files are checked in any case.
        only: the run will read only data of this kind, if there are several; auto: of the only kind that is there.

    Raises:
        BadRequestError: there is no such check, or no such folder; or the recipe can't use only these samples.
    """
    names = list_checks()
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        raise BadRequestError(
            f"no check is called {name}",
            why=f"there are checks for the data of {', '.join(names)}",
            fix=f"did you mean {PROGRAM} check {nearest[0] if nearest else 'NAME'} --data FOLDER?",
        )
    if not folder.is_dir():
        raise BadRequestError(
            f"there is no folder {folder}",
            why="the data of a recipe are files in a folder",
            fix="name that folder with --data",
        )
    module = import_module(f"{__name__}.{name}")
    if max_samples < 0 or (max_samples and not hasattr(module, "MAX_SAMPLES")):
        raise BadRequestError(
            f"--max-samples {max_samples} can't be used for {name}",
            why="it is negative" if max_samples < 0 else "the recipe has no setting that takes only the first samples",
            fix="leave it out",
        )
    _require_kind(name, only, getattr(module, "KINDS", ()))
    found = Findings(folder.absolute(), max_samples=max_samples, only=only)
    check: Check = module.check
    check(found.folder, found)
    return found


def _require_kind(name: str, only: str, kinds: Sequence[str]) -> None:
    if only not in ("auto", *kinds):
        raise BadRequestError(
            f"--only {only} can't be used for {name}",
            why=f"there are {', '.join(kinds)}" if kinds else "its data are of one kind",
            fix="choose one of these" if kinds else "leave it out",
        )
