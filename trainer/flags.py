"""The command line's arguments: one parser for each command. Imports nothing that is slow."""

import argparse
from pathlib import Path
from typing import NoReturn

from trainer import PROGRAM
from trainer.base.errors import BadRequestError, visible
from trainer.base.start_from import StartFrom

EXAMPLES = f"""\
examples:
  {PROGRAM} recipes
  {PROGRAM} digits
  {PROGRAM} path/to/recipe.py --config my.toml --set epochs=3 --output-dir runs/a
  {PROGRAM} digits --help
  torchrun --nproc-per-node 2 {PROGRAM.removeprefix("python ")} digits --set batch_size=128
  {PROGRAM} digits --init weights.safetensors
  {PROGRAM} digits --profile steps=10..20
  {PROGRAM} find-lr digits
  {PROGRAM} find-batch digits
  {PROGRAM} advise digits --gpus 8
  {PROGRAM} remap OLD.pth NEW.safetensors
  {PROGRAM} generate gaussian data/
  {PROGRAM} check gaussian --data data/
  {PROGRAM} preprocess gaussian --data data/ --weights dinov2_vits14_pretrain.pth

The same command resumes from the newest checkpoint. SIGTERM or Ctrl-C saves a checkpoint and stops; a second
Ctrl-C ends at once. Exit codes: 0 finished or stopped as asked, 1 failed, 2 bad request.
"""
RECIPE = "a name (see `recipes`), a file, or package.module:function"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadRequestError(
            f"invalid command line: {message}",
            why=" ".join(self.format_usage().split()),
            fix=f"see {PROGRAM} --help",
        )


def build_parser() -> argparse.ArgumentParser:
    """Describe the training of a recipe. `--help` is an option like others: it may concern a recipe."""
    parser = _Parser(
        prog=PROGRAM,
        description="Train a recipe, alone or under torchrun; stop and resume it without losing a step.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("recipe", nargs="?", help=f"what to train: {RECIPE}")
    parser.add_argument("-h", "--help", action="store_true", help="show this, or with a recipe all of its settings")
    parser.add_argument("--list", action="store_true", help="the same as `recipes`")
    _add_settings(parser)
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        help="checkpoints (default: $KEDGE_CHECKPOINT_DIR, else in the output folder)",
    )
    parser.add_argument(
        "--profile", metavar="steps=FIRST..LAST", help="trace these steps for Perfetto, and say where their time went"
    )
    _add_start(parser)
    return parser


def build_recipes_parser() -> argparse.ArgumentParser:
    """Describe `recipes`."""
    parser = _Parser(
        prog=f"{PROGRAM} recipes",
        description="List the recipes that have a name: the trainer's own, and those of installed packages.",
    )
    parser.add_argument("--json", action="store_true", help="as a JSON list")
    return parser


def build_lr_parser() -> argparse.ArgumentParser:
    """Describe `find-lr`."""
    parser = _build_find_parser(
        "find-lr", "Find a learning rate: steps with a growing rate until the loss diverges. Draws lr-finder.png."
    )
    parser.add_argument("--lowest", type=float, default=1e-6, help="the first rate (default: 1e-6)")
    parser.add_argument("--highest", type=float, default=1.0, help="the last rate (default: 1)")
    parser.add_argument("--steps", type=int, default=200, help="how many rates (default: 200)")
    return parser


def build_batch_parser() -> argparse.ArgumentParser:
    """Describe `find-batch`."""
    parser = _build_find_parser("find-batch", "Find the largest micro-batch that fits on this device.")
    parser.add_argument("--most", type=int, default=4096, help="the largest size to try (default: 4096)")
    return parser


def build_advise_parser() -> argparse.ArgumentParser:
    """Describe `advise`."""
    parser = _Parser(
        prog=f"{PROGRAM} advise",
        description="Recommend batch, learning rate, accumulation and workers for several GPUs. Nothing is trained.",
    )
    parser.add_argument("recipe", help=RECIPE)
    _add_settings(parser)
    parser.add_argument("--gpus", type=int, default=8, help="how many there will be (default: 8)")
    parser.add_argument("--memory-gib", type=float, default=0.0, help="memory of one GPU (default: that of this one's)")
    parser.add_argument("--json", action="store_true", help="as JSON, with memory in bytes")
    return parser


def _positive(text: str) -> int:
    """Parse a whole number above 0."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{visible(text)} is not a whole number above 0")
    return int(text)


def build_check_parser() -> argparse.ArgumentParser:
    """Describe `check`."""
    parser = _Parser(
        prog=f"{PROGRAM} check",
        description="Check a recipe's data before they are uploaded: missing, truncated, mis-shaped, misnamed, "
        "unlabelled. Needs no torch. Exit codes: 0 nothing is wrong, 1 problems were found, 2 bad request.",
    )
    parser.add_argument("recipe", help="whose data these are")
    parser.add_argument("--data", type=Path, required=True, help="the folder, as in the recipe's data.folder")
    parser.add_argument("--batch-size", type=_positive, default=1, help="also refuse data that are fewer than a batch")
    parser.add_argument("--max-samples", type=int, default=0, help="the run will use only the first so many (0: all)")
    parser.add_argument(
        "--only",
        metavar="KIND",
        default="auto",
        help="what the run will read, if the data are of several kinds: the recipe's data.features or data.layout",
    )
    parser.add_argument("--json", action="store_true", help="counts and all problems as JSON")
    return parser


def build_generate_parser() -> argparse.ArgumentParser:
    """Describe `generate`."""
    parser = _Parser(
        prog=f"{PROGRAM} generate",
        description="Write a small data set in the format of a recipe's real data, with structure that can be learnt.",
    )
    parser.add_argument("recipe", help="whose data to write")
    parser.add_argument("folder", type=Path, help="a new or empty folder")
    parser.add_argument("--count", type=int, help="how many samples (default: enough to learn from in minutes)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same data (default: 0)")
    return parser


def build_preprocess_parser() -> argparse.ArgumentParser:
    """Describe `preprocess`."""
    parser = _Parser(
        prog=f"{PROGRAM} preprocess",
        description="Compute what a recipe's data need beside the pictures, by models that you give. Nothing is "
        "downloaded, and no code in the weights is run. The same command goes on after an interruption.",
    )
    parser.add_argument("recipe", choices=["gaussian"], help="whose data these are")
    parser.add_argument("--data", type=Path, required=True, help="the folder, as in the recipe's data.folder")
    parser.add_argument("--weights", type=Path, required=True, help="DINOv2's official dinov2_vits14_pretrain.pth, ...")
    parser.add_argument("--depth-model", type=Path, metavar="FILE", help="an ONNX model of depth (default: no depths)")
    parser.add_argument("--device", default="", help="where DINOv2 computes (default: a GPU if there is one)")
    return parser


def build_remap_parser() -> argparse.ArgumentParser:
    """Describe `remap`."""
    parser = _Parser(
        prog=f"{PROGRAM} remap",
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


def read_start(arguments: argparse.Namespace) -> StartFrom:
    """Return what a new run starts from."""
    return StartFrom(
        init=arguments.init,
        key=arguments.key,
        strict=not arguments.loosely,
        checkpoint=arguments.from_checkpoint,
        epochs_done=arguments.epochs_done,
    )


def _build_find_parser(command: str, what: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"{PROGRAM} {command}", description=f"{what} No weights are saved.")
    parser.add_argument("recipe", help=RECIPE)
    _add_settings(parser)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting (repeatable)")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="take settings from a TOML file (repeatable); --set wins",
    )
    parser.add_argument("--output-dir", type=Path, help="results (default: $KEDGE_OUTPUT_DIR, else ./output)")


def _add_start(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what a new run starts from; a run that has a checkpoint goes on from that")
    group.add_argument("--init", metavar="WEIGHTS", help="weights: a file, or hf:OWNER/NAME[/FILE][@REVISION]")
    group.add_argument("--loosely", action="store_true", help="--init: load only the weights that fit")
    group.add_argument(
        "--from",
        dest="from_checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="go on from another run's checkpoint, with other settings; also from another trainer's",
    )
    group.add_argument("--epochs-done", type=int, metavar="N", help="--from another trainer's: how far that one was")
    group.add_argument("--key", help="where the weights are in that file, as KEY/KEY (default: the usual places)")
