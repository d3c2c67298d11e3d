"""The command line: `python -m trainer RECIPE --set key=value`. Light: torch is imported for a run only."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from trainer.contract import read_contract
from trainer.errors import BadRequestError, TrainerError
from trainer.signals import StopFlag

EXAMPLES = """\
examples:
  python -m trainer --list
  python -m trainer digits
  python -m trainer digits --set epochs=3 --set optimizer.learning_rate=0.002 --output-dir runs/a
  torchrun --nproc-per-node 2 -m trainer digits --set batch_size=128

The same command goes on from the newest checkpoint. SIGTERM or Ctrl-C checkpoints and stops; a second
Ctrl-C ends at once. Exit codes: 0 finished or stopped as asked, 1 failed, 2 bad request.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadRequestError(
            f"the command line is not understood: {message}",
            why=" ".join(self.format_usage().split()),
            fix="see python -m trainer --help",
        )


def main(argv: Sequence[str], *, environ: Mapping[str, str], stop: StopFlag) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the arguments, without the program's name.
        environ: the environment, for the run contract and torchrun's variables.
        stop: who was told to stop; its handlers may have been installed before.
    """
    try:
        return _run(build_parser().parse_args(argv), environ, stop)
    except TrainerError as err:
        # Every process meets the same bad request; one of them says it.
        if environ.get("RANK", "0") == "0" or err.exit_code == 1:
            sys.stderr.write(f"error: {err}\n")
            sys.stderr.flush()
        return err.exit_code


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = _Parser(
        prog="python -m trainer",
        description="Train a recipe, alone or under torchrun; stop and resume it without losing a step.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", nargs="?", help="what to train; see --list")
    parser.add_argument("--list", action="store_true", help="list the recipes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting (repeatable)")
    parser.add_argument("--output-dir", type=Path, help="results (default: $KEDGE_OUTPUT_DIR, else ./output)")
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        help="checkpoints (default: $KEDGE_CHECKPOINT_DIR, else in the output folder)",
    )
    return parser


def _run(arguments: argparse.Namespace, environ: Mapping[str, str], stop: StopFlag) -> int:
    from trainer.recipes import check_recipe_name, list_recipes, load_recipe  # noqa: PLC0415

    if arguments.list:
        _print_recipes(list_recipes())
        return 0
    if arguments.recipe is None:
        raise BadRequestError(
            "no recipe is named",
            why=f"the recipes are: {', '.join(list_recipes())}",
            fix="python -m trainer RECIPE, for example python -m trainer digits",
        )
    contract = read_contract(environ, output_dir=arguments.output_dir, checkpoint_dir=arguments.checkpoint_dir)
    check_recipe_name(arguments.recipe)
    # From here on seconds pass and torch is loaded: only what trains pays for it.
    from trainer.engine import run_recipe  # noqa: PLC0415
    from trainer.overrides import apply_overrides  # noqa: PLC0415

    recipe = load_recipe(arguments.recipe)
    recipe = replace(recipe, settings=apply_overrides(recipe.settings, arguments.set))
    run_recipe(arguments.recipe, recipe, contract, stop)
    return 0


def _print_recipes(recipes: Mapping[str, str]) -> None:
    width = max(len(name) for name in recipes)
    for name, description in recipes.items():
        sys.stdout.write(f"{name:{width}}  {description}\n")
