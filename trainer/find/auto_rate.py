"""`optimizer.learning_rate=auto`: a range test finds the rate before the first step.

The test trains a learner of its own, which is dropped: the run that follows has the bits of one that got the rate. Its
checkpoints, config.toml and metrics have the rate as a number. A run with a checkpoint takes the rate from there.
"""

import gc
import re
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from trainer.base.config import AUTO
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError
from trainer.base.recipe import Recipe
from trainer.base.start_from import StartFrom
from trainer.checkpoints.header import read_header
from trainer.checkpoints.store import SUFFIX, CheckpointStore
from trainer.checkpoints.weights import list_saved_names
from trainer.find.finders import CURVE, factor_to_peak, sweep_trial
from trainer.find.lr_finder import LearningRateSweep, Suggestion, draw_sweep, suggest_rate
from trainer.find.trial import Say, Trial, prepare_trial
from trainer.group.distributed import ProcessGroup
from trainer.start.carried import Target
from trainer.start.weights import find_initial_weights
from trainer.step.build import build_workload

KEY = "optimizer.learning_rate"
_NUMBER = re.compile(r"\d+")


def settle_rate(
    recipe: Recipe[Any], contract: RunContract, group: ProcessGroup, start: StartFrom, say: Say
) -> Recipe[Any]:
    """Return the recipe with a number as its learning rate, the same on every process; collective.

    Raises:
        BadRequestError: the rate can't be found, because the loss diverged at once, or the run goes on from another
            run's checkpoint.
    """
    optimizer = recipe.settings.optimizer
    if optimizer.learning_rate != AUTO:
        return recipe
    rate = _find_recorded(contract.checkpoint_dir, group)
    if rate is None:
        found = _find(recipe, contract, group, start, say)
        rate = group.broadcast_from_main(lambda: found)
    else:
        say(f"learning rate {rate:g}: found when the run began")
    return replace(recipe, settings=replace(recipe.settings, optimizer=replace(optimizer, learning_rate=rate)))


def _find_recorded(folder: Path, group: ProcessGroup) -> float | None:
    """Return the rate in the newest checkpoint that any process has; None without one."""
    found = [each for each in group.all_gather(_read_recorded(folder)) if each]
    return max(found)[1] if found else None


def _read_recorded(folder: Path) -> tuple[int, float] | None:
    for path in CheckpointStore(folder, keep=1, fingerprint={}).list_steps():
        for file in sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]:
            with suppress(OSError, ValueError, LookupError, TypeError):
                rate, step = read_header(file).plain["fingerprint"][KEY], _NUMBER.search(path.name)
                if isinstance(rate, int | float) and step:
                    return int(step[0]), float(rate)
    return None


def _find(recipe: Recipe[Any], contract: RunContract, group: ProcessGroup, start: StartFrom, say: Say) -> float:
    if start.checkpoint is not None:
        raise BadRequestError(
            "optimizer.learning_rate=auto is for a run that begins",
            why="--from goes on with a training, and a range test of half-trained weights says little",
            fix="give a number; that run's config.toml has its rate",
        )
    say("learning rate: a range test looks for it, in 200 steps or less")
    trial = prepare_trial(recipe, build_workload(recipe, group), contract, group, say)
    _load_weights(trial, contract, start)
    sweep = sweep_trial(trial, recipe.settings)
    plan = trial.plan
    del trial
    _free_memory(group.device)
    try:
        suggestion = suggest_rate(sweep)
    except BadRequestError as err:
        raise BadRequestError(
            "optimizer.learning_rate=auto finds no rate", why=f"{err.what}; {err.why}", fix="give a number"
        ) from err
    _draw(recipe, sweep, suggestion, contract, group)
    # The user's rate_factor multiplies what was found.
    factor = factor_to_peak(replace(recipe.settings.optimizer, rate_factor=1.0), plan)
    rate = float(f"{suggestion.steepest / factor:.3g}")
    at = f" ({suggestion.steepest:.3g} for this batch of {plan.batch_size})" if factor != 1 else ""
    say(f"learning rate {rate:g}{at}: the loss falls fastest there")
    return rate


def _load_weights(trial: Trial, contract: RunContract, start: StartFrom) -> None:
    """Start the test from the weights that the run starts from."""
    model, group = trial.workload.model, trial.learner.group
    target = Target(
        fingerprint={},
        model=model,
        names=tuple(list_saved_names(model, trainable_only=trial.workload.trainable_only)),
        plan=trial.plan,
        samples=len(trial.workload.train_data),
        processes=group.size,
    )
    weights = find_initial_weights(start, target, group, contract.hub)
    if weights:
        weights.load_into(trial.learner, group)


def _free_memory(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _draw(
    recipe: Recipe[Any], sweep: LearningRateSweep, suggestion: Suggestion, contract: RunContract, group: ProcessGroup
) -> None:
    if group.is_main and recipe.settings.curves and find_spec("matplotlib"):
        contract.output_dir.mkdir(parents=True, exist_ok=True)
        draw_sweep(sweep, suggestion, contract.output_dir / CURVE)
