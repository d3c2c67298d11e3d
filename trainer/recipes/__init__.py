"""The recipes: one module each, found by name and imported only when it is used.

A recipe's module has a public function `recipe()`; its docstring's first line is the recipe's description.
"""

import ast
import difflib
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from trainer.base.config import Settings
from trainer.base.errors import BadRequestError

if TYPE_CHECKING:  # importing it loads torch, which listing names doesn't need
    from trainer.base.recipe import Recipe


def list_recipes() -> dict[str, str]:
    """Map every recipe's name to its one-line description, without importing any."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    return {name: _describe(name) for name in sorted(names)}


def check_recipe_name(name: str) -> None:
    """Check that a recipe exists.

    Raises:
        BadRequestError: it doesn't; the message suggests the nearest name.
    """
    names = list(list_recipes())
    if name in names:
        return
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise BadRequestError(
        f"unknown recipe {name}",
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
