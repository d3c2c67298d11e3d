"""The command line: `python -m trainer RECIPE --set key=value`. Imports torch only when something is trained."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from trainer.base.contract import read_contract
from trainer.base.errors import BadRequestError, TrainerError, visible
from trainer.base.signals import StopFlag

EXAMPLES = """\
examples:
  python -m trainer --list
  python -m trainer digits
  python -m trainer digits --set epochs=3 --set optimizer.learning_rate=0.002 --output-dir runs/a
  torchrun --nproc-per-node 2 -m trainer digits --set batch_size=128
  python -m trainer find-lr digits
  python -m trainer find-batch digits
  python -m trainer advise digits --gpus 8
  python -m trainer remap OLD.pth NEW.safetensors

The same command resumes from the newest checkpoint. SIGTERM or Ctrl-C saves a checkpoint and stops; a second
Ctrl-C ends at once. Exit codes: 0 finished or stopped as asked, 1 failed, 2 bad request.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadRequestError(
            f"invalid command line: {message}",
            why=" ".join(self.format_usage().split()),
            fix="see python -m trainer --help",
        )


def main(argv: Sequence[str], *, environ: Mapping[str, str], stop: StopFlag) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the arguments, without the program's name.
        environ: the environment, for the run contract and torchrun's variables.
        stop: the stop flag, whose signal handlers may already be installed.
    """
    try:
        if argv[:1] == ["remap"]:
            return _remap(build_remap_parser().parse_args(argv[1:]), stop)
        if argv[:1] in (["find-lr"], ["find-batch"]):
            return _find(argv[0], build_find_parser(argv[0]).parse_args(argv[1:]), environ, stop)
        if argv[:1] == ["advise"]:
            return _advise(build_advise_parser().parse_args(argv[1:]), environ, stop)
        return _run(build_parser().parse_args(argv), environ, stop)
    except TrainerError as err:
        # Every process meets the same bad request; only one prints it.
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
    _add_settings(parser)
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        help="checkpoints (default: $KEDGE_CHECKPOINT_DIR, else in the output folder)",
    )
    return parser


def build_find_parser(command: str) -> argparse.ArgumentParser:
    """Describe `find-lr` or `find-batch`."""
    what = {
        "find-lr": "Find a learning rate: steps with a growing rate until the loss diverges. Draws lr-finder.png.",
        "find-batch": "Find the largest micro-batch that fits on this device.",
    }
    parser = _Parser(prog=f"python -m trainer {command}", description=f"{what[command]} No weights are saved.")
    parser.add_argument("recipe", help="what to train")
    _add_settings(parser)
    if command == "find-lr":
        parser.add_argument("--lowest", type=float, default=1e-6, help="the first rate (default: 1e-6)")
        parser.add_argument("--highest", type=float, default=1.0, help="the last rate (default: 1)")
        parser.add_argument("--steps", type=int, default=200, help="how many rates (default: 200)")
    else:
        parser.add_argument("--most", type=int, default=4096, help="the largest size to try (default: 4096)")
    return parser


def build_advise_parser() -> argparse.ArgumentParser:
    """Describe `advise`."""
    parser = _Parser(
        prog="python -m trainer advise",
        description="Recommend batch, learning rate, accumulation and workers for several GPUs. Nothing is trained.",
    )
    parser.add_argument("recipe", help="what to train")
    _add_settings(parser)
    parser.add_argument("--gpus", type=int, default=8, help="how many GPUs there will be (default: 8)")
    parser.add_argument("--memory-gib", type=float, default=0.0, help="memory of one GPU (default: this machine's)")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting (repeatable)")
    parser.add_argument("--output-dir", type=Path, help="results (default: $KEDGE_OUTPUT_DIR, else ./output)")


def build_remap_parser() -> argparse.ArgumentParser:
    """Describe `remap`."""
    parser = _Parser(
        prog="python -m trainer remap",
        description="Convert any trainer's checkpoint to safetensors under the model's own names. Runs no code in it.",
    )
    parser.add_argument(
        "old",
        type=Path,
        help="a file of torch.save (weights, or a dict that holds them), safetensors, or a folder of shards",
    )
    parser.add_argument("new", type=Path, help="the file to write, NAME.safetensors")
    parser.add_argument("--key", help="where the weights are in OLD, as KEY/KEY (default: the usual places)")
    return parser


def _remap(arguments: argparse.Namespace, stop: StopFlag) -> int:
    from trainer.checkpoints.remap import remap  # noqa: PLC0415

    stop.release()  # there is no step to finish: Ctrl-C may end it anywhere
    sys.stdout.write(f"{visible(remap(arguments.old, arguments.new, key=arguments.key))}\n")
    return 0


def _find(command: str, arguments: argparse.Namespace, environ: Mapping[str, str], stop: StopFlag) -> int:
    from trainer.recipes import check_recipe_name, load_recipe  # noqa: PLC0415

    contract = read_contract(environ, output_dir=arguments.output_dir)
    check_recipe_name(arguments.recipe)
    stop.release()  # nothing is saved that an interrupt could cut in two
    from trainer.base.overrides import apply_overrides  # noqa: PLC0415
    from trainer.find.finders import find_learning_rate, find_micro_batch  # noqa: PLC0415
    from trainer.report.console import Console  # noqa: PLC0415

    recipe = load_recipe(arguments.recipe)
    recipe = replace(recipe, settings=apply_overrides(recipe.settings, arguments.set))
    say = Console(enabled=contract.rank == 0).say
    if command == "find-batch":
        find_micro_batch(recipe, contract, say, most=arguments.most)
    else:
        rates = {"lowest": arguments.lowest, "highest": arguments.highest}
        find_learning_rate(recipe, contract, say, steps=arguments.steps, **rates)
    return 0


def _advise(arguments: argparse.Namespace, environ: Mapping[str, str], stop: StopFlag) -> int:
    from trainer.recipes import check_recipe_name, load_recipe  # noqa: PLC0415

    contract = read_contract(environ, output_dir=arguments.output_dir)
    check_recipe_name(arguments.recipe)
    stop.release()  # nothing is saved that an interrupt could cut in two
    from trainer.base.overrides import apply_overrides  # noqa: PLC0415
    from trainer.find.advise import advise  # noqa: PLC0415

    recipe = load_recipe(arguments.recipe)
    recipe = replace(recipe, settings=apply_overrides(recipe.settings, arguments.set))

    def say(text: str) -> None:
        sys.stdout.write(f"{visible(text)}\n")

    advise(recipe, contract, say, gpus=arguments.gpus, memory_gib=arguments.memory_gib, json=arguments.json)
    return 0


def _run(arguments: argparse.Namespace, environ: Mapping[str, str], stop: StopFlag) -> int:
    from trainer.recipes import check_recipe_name, list_recipes, load_recipe  # noqa: PLC0415

    if arguments.list:
        _print_recipes(list_recipes())
        return 0
    if arguments.recipe is None:
        raise BadRequestError(
            "no recipe given",
            why=f"the recipes are: {', '.join(list_recipes())}",
            fix="python -m trainer RECIPE, for example python -m trainer digits",
        )
    contract = read_contract(environ, output_dir=arguments.output_dir, checkpoint_dir=arguments.checkpoint_dir)
    check_recipe_name(arguments.recipe)
    # These imports load torch, which takes seconds: only a run pays for them.
    from trainer.base.overrides import apply_overrides  # noqa: PLC0415
    from trainer.run.engine import run_recipe  # noqa: PLC0415

    recipe = load_recipe(arguments.recipe)
    recipe = replace(recipe, settings=apply_overrides(recipe.settings, arguments.set))
    run_recipe(arguments.recipe, recipe, contract, stop)
    return 0


def _print_recipes(recipes: Mapping[str, str]) -> None:
    width = max(len(name) for name in recipes)
    for name, description in recipes.items():
        sys.stdout.write(f"{name:{width}}  {description}\n")
