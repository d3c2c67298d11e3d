"""Imports a recipe's module and calls its function. What goes wrong in a user's code is told without our traceback."""

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from trainer.base.config import Settings
from trainer.base.errors import BadRequestError, TrainerError, clip
from trainer.base.memory import is_out_of_memory
from trainer.base.recipe import Recipe, Workload
from trainer.recipes import RecipeSource, describe_recipe

# A name that no other module has, even if the recipe's file is called json.py.
_PREFIX = "kedge_recipe_"
_MACHINERY = ("<frozen ", __file__)


def load_recipe(source: RecipeSource) -> Recipe[Settings]:
    """Import a recipe and return its default configuration; its folder is on `sys.path` from then on.

    Its `build` raises BadRequestError whatever goes wrong in it, and if it returns no workload.

    Raises:
        BadRequestError: its module can't be imported, or its function doesn't return a recipe.
    """
    with _told(source, "cannot be imported"):
        module = _import_file(source.file) if source.file else _import_module(source)
    try:
        make = attrgetter(source.function)(module)
    except AttributeError as err:
        names = [name for name, value in vars(module).items() if callable(value) and _is_own(value, module)]
        raise BadRequestError(
            f"the recipe {source.origin} has no function {source.function}",
            why=f"it has: {', '.join(names) or 'no function'}",
            fix=f"add a function {source.function}() that returns a Recipe, or name another one after a colon",
        ) from err
    with _told(source, f"failed in {source.function}()"):
        recipe = make()
    if not isinstance(recipe, Recipe) or not isinstance(recipe.settings, Settings):
        got = f"settings of type {type(recipe.settings).__name__}" if isinstance(recipe, Recipe) else repr(type(recipe))
        raise BadRequestError(
            f"the recipe {source.origin} returns no Recipe",
            why=f"{source.function}() returned {got}",
            fix="return trainer.api.Recipe(settings=..., build=...), whose settings subclass trainer.api.Settings",
        )
    return replace(
        recipe,
        build=_tell_errors(recipe.build, source),
        description=recipe.description or describe_recipe(source),
        defaults=recipe.settings,
    )


def _tell_errors(build: Callable[[Any], Workload], source: RecipeSource) -> Callable[[Any], Workload]:
    """Return a recipe's `build`, whose errors are told like those of its import."""

    def build_or_tell(settings: Settings) -> Workload:
        with _told(source, "failed in build"):
            workload = build(settings)
        if not isinstance(workload, Workload):
            raise BadRequestError(
                f"the recipe {source.origin} builds no Workload",
                why=f"build returned {type(workload)!r}",
                fix="return trainer.api.Workload(model=..., train_data=..., validation_data=..., loss=...)",
            )
        return replace(workload, model=_tell_call(workload.model, source), blocks=_tell_call(workload.blocks, source))

    return build_or_tell


def _tell_call(part: Any, source: RecipeSource) -> Any:
    """Return a function of a workload with its errors told as well; other parts as they are."""
    if not isinstance(part, FunctionType | MethodType | partial | type):
        return part

    def call_or_tell(*arguments: Any) -> Any:
        with _told(source, "failed in a function of its workload"):
            return part(*arguments)

    return call_or_tell


def _import_module(source: RecipeSource) -> ModuleType:
    try:
        return import_module(source.module)
    except ModuleNotFoundError as err:
        if err.name is None or not f"{source.module}.".startswith(f"{err.name}."):
            raise
        raise BadRequestError(
            f"there is no module {source.module}",
            why=f"{err.name} is neither in this folder nor installed",
            fix="start in the folder that has it, or give the recipe's file",
        ) from err


def _import_file(file: Path) -> ModuleType:
    """Import a file like a script: what lies beside it comes first on `sys.path`."""
    name = _PREFIX + file.stem
    spec = spec_from_file_location(name, file)
    assert spec is not None  # noqa: S101 - its name ends in .py
    assert spec.loader is not None  # noqa: S101
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _told(source: RecipeSource, what: str) -> Iterator[None]:
    """Turn any error of a user's code into one that says what it was, and where."""
    try:
        yield
    except TrainerError:
        raise
    except (Exception, SystemExit) as err:
        if is_out_of_memory(err) or (isinstance(err, OSError) and err.filename is None):
            raise  # no mistake in the recipe: a network that fails names no file
        raise BadRequestError(
            f"the recipe {source.origin} {what}",
            why=f"{_last_line(err)}{_place(err, source)}",
            fix=f"install {err.name}, or put it beside the recipe"
            if isinstance(err, ModuleNotFoundError) and err.name
            else "correct that line",
        ) from err


def _last_line(err: BaseException) -> str:
    return clip(" ".join(traceback.format_exception_only(err)[-1].split()))


def _place(err: BaseException, source: RecipeSource) -> str:
    """Return the file and line of an error: the innermost ones of the user's code, if it is in a library."""
    if isinstance(err, SyntaxError) and err.filename:
        return f" ({err.filename}:{err.lineno})"
    frames = [each for each in traceback.extract_tb(err.__traceback__) if not each.filename.startswith(_MACHINERY)]
    beside = [each for each in frames if source.file and Path(each.filename).is_relative_to(source.file.parent)]
    innermost = (beside or frames)[-1:]
    return f" ({innermost[0].filename}:{innermost[0].lineno})" if innermost else ""


def _is_own(value: Any, module: ModuleType) -> bool:
    return not isinstance(value, type) and getattr(value, "__module__", None) == module.__name__
