"""The command line: `python -m trainer RECIPE --set key=value`. Imports torch only when a recipe is loaded."""

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainer import PROGRAM
from trainer.base.contract import RunContract, read_contract
from trainer.base.errors import BadRequestError, TrainerError, visible
from trainer.base.signals import StopFlag
from trainer.flags import (
    build_advise_parser,
    build_batch_parser,
    build_check_parser,
    build_generate_parser,
    build_lr_parser,
    build_parser,
    build_preprocess_parser,
    build_recipes_parser,
    build_remap_parser,
    read_start,
)
from trainer.recipes import find_recipe, list_recipes

if TYPE_CHECKING:  # importing it loads torch
    from trainer.base.recipe import Recipe

_TERMINAL = (100, 24)
"""Columns and lines where there is no terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A command with its arguments."""

    arguments: argparse.Namespace
    environ: Mapping[str, str]
    stop: StopFlag


def main(argv: Sequence[str], *, environ: Mapping[str, str], stop: StopFlag) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the arguments, without the program's name.
        environ: the environment, for the run contract and torchrun's variables.
        stop: the stop flag, whose signal handlers may already be installed.
    """
    try:
        is_command = bool(argv) and argv[0] in _COMMANDS
        build, run = _COMMANDS[argv[0]] if is_command else (build_parser, _train)
        exit_code = run(_Call(arguments=build().parse_args(argv[is_command:]), environ=environ, stop=stop))
    except TrainerError as err:
        # Every process meets the same bad request; only one prints it.
        if environ.get("RANK", "0") == "0" or err.exit_code == 1:
            sys.stderr.write(f"error: {err}\n")
            sys.stderr.flush()
        return err.exit_code
    return exit_code or 0


def _list_recipes(call: _Call) -> None:
    from trainer.listing import render_recipes, render_recipes_as_json  # noqa: PLC0415

    render = render_recipes_as_json if call.arguments.json else render_recipes
    sys.stdout.write(render(list_recipes()))


def _remap(call: _Call) -> None:
    from trainer.checkpoints.remap import remap  # noqa: PLC0415

    call.stop.release()  # there is no step to finish: Ctrl-C may end it anywhere
    arguments = call.arguments
    sys.stdout.write(f"{visible(remap(arguments.old, arguments.new, key=arguments.key))}\n")


def _check(call: _Call) -> int:
    from trainer.checks import check_data  # noqa: PLC0415

    call.stop.release()
    arguments = call.arguments
    found = check_data(arguments.recipe, arguments.data, max_samples=arguments.max_samples, only=arguments.only)
    found.require_steps(arguments.batch_size)
    sys.stdout.write(found.render_json() if arguments.json else found.render())
    return int(bool(found))


def _generate(call: _Call) -> None:
    from trainer.generators import generate_data  # noqa: PLC0415

    call.stop.release()
    arguments = call.arguments
    generate_data(arguments.recipe, arguments.folder, count=arguments.count, seed=arguments.seed)


def _preprocess(call: _Call) -> None:
    from trainer.preprocess.gaussian import preprocess  # noqa: PLC0415
    from trainer.report.console import Console  # noqa: PLC0415

    call.stop.release()
    arguments = call.arguments
    models = {"weights": arguments.weights, "depth_model": arguments.depth_model}
    preprocess(arguments.data, **models, device=arguments.device, say=Console(enabled=True).say)


def _find_lr(call: _Call) -> None:
    arguments = call.arguments
    contract, _, recipe = _prepare(call)
    from trainer.find.finders import find_learning_rate  # noqa: PLC0415
    from trainer.report.console import Console  # noqa: PLC0415

    rates = {"lowest": arguments.lowest, "highest": arguments.highest}
    say = Console(enabled=contract.rank == 0).say
    find_learning_rate(recipe, contract, say, steps=arguments.steps, **rates)


def _find_batch(call: _Call) -> None:
    contract, _, recipe = _prepare(call)
    from trainer.find.finders import find_micro_batch  # noqa: PLC0415
    from trainer.report.console import Console  # noqa: PLC0415

    find_micro_batch(recipe, contract, Console(enabled=contract.rank == 0).say, most=call.arguments.most)


def _advise(call: _Call) -> None:
    arguments = call.arguments
    contract, _, recipe = _prepare(call)
    from trainer.find.advise import advise  # noqa: PLC0415

    def say(text: str) -> None:
        sys.stdout.write(f"{visible(text)}\n")

    advise(recipe, contract, say, gpus=arguments.gpus, memory_gib=arguments.memory_gib, json=arguments.json)


def _train(call: _Call) -> None:
    arguments = call.arguments
    if arguments.help:
        _show_help(arguments)
        return
    if arguments.list:
        _list_recipes(replace(call, arguments=build_recipes_parser().parse_args([])))
        return
    if arguments.recipe is None:
        raise BadRequestError(
            "no recipe given",
            why=f"the recipes are: {', '.join(each.name for each in list_recipes())}; a file may be given as well",
            fix=f"{PROGRAM} RECIPE, for example {PROGRAM} digits",
        )
    contract, name, recipe = _prepare(call, trains=True)
    from trainer.report.profile import parse_profile  # noqa: PLC0415
    from trainer.run.engine import run_recipe  # noqa: PLC0415

    profile = parse_profile(arguments.profile) if arguments.profile else None
    run_recipe(name, recipe, contract, call.stop, read_start(arguments), profile=profile)


def _show_help(arguments: argparse.Namespace) -> None:
    if arguments.recipe is None:
        sys.stdout.write(build_parser().format_help())
        return
    from trainer.base.setting import describe_settings  # noqa: PLC0415
    from trainer.listing import render_settings  # noqa: PLC0415

    name, recipe = _load(arguments)
    title = f"{name}: {recipe.description} Its settings, for --set KEY=VALUE or a TOML file of --config:"
    columns = shutil.get_terminal_size(_TERMINAL).columns
    sys.stdout.write(render_settings(title, list(describe_settings(recipe.settings)), width=columns))


def _prepare(call: _Call, *, trains: bool = False) -> "tuple[RunContract, str, Recipe[Any]]":
    """Return the run contract, the recipe's name, and the recipe with the user's settings.

    If nothing is trained, nothing is saved that an interrupt could cut in two: Ctrl-C may end it anywhere.
    """
    arguments = call.arguments
    folders = {"checkpoint_dir": arguments.checkpoint_dir} if trains else {}
    contract = read_contract(call.environ, output_dir=arguments.output_dir, **folders)
    find_recipe(arguments.recipe)
    if not trains:
        call.stop.release()
    return contract, *_load(arguments)


def _load(arguments: argparse.Namespace) -> "tuple[str, Recipe[Any]]":
    """Import the recipe, and apply the user's settings: files first, in order, then --set."""
    source = find_recipe(arguments.recipe)
    # These load torch, which takes seconds.
    from trainer.base.config_file import apply_config  # noqa: PLC0415
    from trainer.base.overrides import apply_overrides  # noqa: PLC0415
    from trainer.recipes._loading import load_recipe  # noqa: PLC0415

    recipe = load_recipe(source)
    settings = recipe.settings
    for file in arguments.config:
        settings = apply_config(settings, file)
    return source.name, replace(recipe, settings=apply_overrides(settings, arguments.set))


_COMMANDS: dict[str, tuple[Callable[[], argparse.ArgumentParser], Callable[[_Call], int | None]]] = {
    "recipes": (build_recipes_parser, _list_recipes),
    "find-lr": (build_lr_parser, _find_lr),
    "find-batch": (build_batch_parser, _find_batch),
    "advise": (build_advise_parser, _advise),
    "remap": (build_remap_parser, _remap),
    "check": (build_check_parser, _check),
    "generate": (build_generate_parser, _generate),
    "preprocess": (build_preprocess_parser, _preprocess),
}
