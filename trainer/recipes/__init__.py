"""The recipes, imported only when they are used: those in this folder, installed ones, and any file or module.

    digits               a module in this folder, or an entry point of the group `kedge.recipes`
    path/to/recipe.py    a file; it may import modules beside it
    package.module:name  a function of a module

A recipe is a function without arguments that returns a `Recipe`; in a module or file it is called `recipe`, unless
another name is given after a colon. The first line of the docstring is the recipe's description.
"""

import ast
import difflib
import pkgutil
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from trainer import PROGRAM
from trainer.base.errors import BadRequestError

GROUP = "kedge.recipes"
FUNCTION = "recipe"
_BUILT_IN = "built in"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSource:
    """Where a recipe is.

    `name` identifies the recipe in checkpoints. It stays the same if a file is moved, or a module is given as a file.
    """

    name: str
    origin: str
    module: str
    function: str = FUNCTION
    file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRecipe:
    """A recipe that can be named, where it comes from, and what it is."""

    name: str
    origin: str
    description: str


def list_recipes() -> list[ListedRecipe]:
    """List the recipes that have a name, without importing any: those of the trainer, and of installed packages."""
    return [
        ListedRecipe(name=name, origin=source.origin, description=describe_recipe(source))
        for name, source in _list_named().items()
    ]


def find_recipe(text: str) -> RecipeSource:
    """Find a recipe by name, as a file, or as `package.module:function`, without importing it.

    Raises:
        BadRequestError: there is none; the message suggests the nearest name.
    """
    before, _, after = text.rpartition(":")
    place, function = (before, after) if before else (text, FUNCTION)
    if place.endswith(".py") or "/" in place:
        return _find_file(Path(place), function)
    if before:
        return _at_module(place, function)
    if text in _list_built_in():
        return _built_in(text)
    named = _list_named()
    if text not in named:
        raise _unknown(text, list(named))
    return named[text]


def describe_recipe(source: RecipeSource) -> str:
    """Return a recipe's description without importing it; empty if it has none or can't be read."""
    try:
        code = source.file.read_bytes() if source.file else _read_module(source.module)
        tree = ast.parse(code)
    except (OSError, ValueError, SyntaxError):
        return ""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == source.function]
    own = ast.get_docstring(functions[0]) if functions and source.function != FUNCTION else None
    return (own or ast.get_docstring(tree) or "").partition("\n")[0]


def _find_file(path: Path, function: str) -> RecipeSource:
    if not path.is_file() or path.suffix != ".py":
        what = "it is a folder" if path.is_dir() else "its name doesn't end in .py"
        raise BadRequestError(
            f"there is no recipe {path}",
            why=what if path.exists() else "the file doesn't exist",
            fix=f"give a Python file that has a function {FUNCTION}()",
        )
    name = _identify(path.stem, function)
    return RecipeSource(name=name, origin=str(path), module=path.stem, function=function, file=path.resolve())


def _at_module(module: str, function: str) -> RecipeSource:
    if not all(part.isidentifier() for part in (*module.split("."), *function.split("."))):
        raise BadRequestError(
            f"{module}:{function} names no function",
            why="that takes package.module:function",
            fix="give a module's name, a colon, and the name of a function in it",
        )
    name = _identify(module.rpartition(".")[2], function)
    return RecipeSource(name=name, origin=f"{module}:{function}", module=module, function=function)


def _identify(stem: str, function: str) -> str:
    return stem if function == FUNCTION else f"{stem}.{function}"


def _list_named() -> dict[str, RecipeSource]:
    """Map names to recipes: the trainer's own first; a name that several packages have is nobody's."""
    named = {name: _built_in(name) for name in _list_built_in()}
    foreign: dict[str, list[RecipeSource]] = {}
    for each in sorted(entry_points(group=GROUP)):
        foreign.setdefault(each.name, []).append(_installed(each))
    for name, sources in foreign.items():
        if name not in named and len(sources) == 1:
            named[name] = sources[0]
            continue
        named |= {f"{each.module}:{each.function}": _at_module(each.module, each.function) for each in sources}
    return named


def _list_built_in() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def _built_in(name: str) -> RecipeSource:
    return RecipeSource(name=name, origin=_BUILT_IN, module=f"{__name__}.{name}")


def _installed(entry: EntryPoint) -> RecipeSource:
    package = entry.dist.name if entry.dist else entry.module
    return RecipeSource(name=entry.name, origin=package, module=entry.module, function=entry.attr or FUNCTION)


def _unknown(text: str, names: list[str]) -> BadRequestError:
    nearest = difflib.get_close_matches(text, names, n=1, cutoff=0.0)[0]
    suggestion = f"./{text}.py" if Path(f"{text}.py").is_file() else nearest
    return BadRequestError(
        f"unknown recipe {text}",
        why=f"the recipes are: {', '.join(names)}; a file or package.module:function may be given as well",
        fix=f"did you mean {PROGRAM} {suggestion}?",
    )


def _read_module(name: str) -> bytes:
    """Read a module's source without importing it, nor the packages that it is in.

    Raises:
        OSError: there is none.
    """
    top, *rest = name.split(".")
    spec = find_spec(top)
    for depth, _ in enumerate(rest, 2):
        places = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(".".join(name.split(".")[:depth]), places) if places else None
    if spec is None or spec.origin is None:
        raise FileNotFoundError(name)
    return Path(spec.origin).read_bytes()
