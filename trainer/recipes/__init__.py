"""The recipes: one file each, found by its name and imported only when asked for.

A recipe's file has a public function `recipe()`, and its docstring's first line is its description.
"""

import ast
import difflib
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from trainer.config import Settings
from trainer.errors import BadRequestError

if TYPE_CHECKING:  # it imports torch, which a list of names doesn't need
    from trainer.recipe import Recipe


def list_recipes() -> dict[str, str]:
    """Map every recipe's name to its one-line description, without importing any."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    return {name: _describe(name) for name in sorted(names)}


def check_recipe_name(name: str) -> None:
    """Make sure that there is such a recipe.

    Raises:
        BadRequestError: there is none; the nearest name is suggested.
    """
    names = list(list_recipes())
    if name in names:
        return
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise BadRequestError(
        f"no recipe is called {name}",
        why=f"the recipes are: {', '.join(names)}",
        fix=f"did you mean python -m trainer {nearest}?",
    )


def load_recipe(name: str) -> "Recipe[Settings]":
    """Import a recipe and return its default configuration.

    Raises:
        BadRequestError: there is no such recipe.
    """
    check_recipe_name(name)
    recipe: Recipe[Settings] = import_module(f"{__name__}.{name}").recipe()
    return recipe


def _describe(name: str) -> str:
    source = pkgutil.get_data(__name__, f"{name}.py") or b""
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return docstring.partition("\n")[0]
