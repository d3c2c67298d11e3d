"""What a checkpoint has in common with the runs that resume it: compared, refused, or announced. Pure.

Settings that would make the result silently wrong must be equal. Others ("announced") may differ: they count from
there on, and that is said. The rest isn't in the fingerprint.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from torch import nn

from trainer.base.config import Settings
from trainer.base.errors import CheckpointMismatchError
from trainer.base.recipe import BuiltWorkload
from trainer.base.setting import flatten_settings, list_defaults
from trainer.checkpoints.store import find_differences

State = dict[str, Any]
_BEST = ("validate.best", "validate.best_is")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A run's settings by key, `announced` of which may change.

    `defaults` are the values of settings that an older checkpoint doesn't have.
    """

    values: dict[str, Any]
    announced: frozenset[str]
    defaults: dict[str, Any]

    def of_best(self) -> dict[str, Any]:
        """List what best weights must have in common to be compared: all that may not change."""
        return {key: value for key, value in self.values.items() if key not in self.announced}

    def take_up(self, state: State) -> tuple[State, tuple[str, ...]]:
        """Return a checkpoint's state without what changed settings make useless, and a line about each change.

        Raises:
            CheckpointMismatchError: a setting differs that may not change.
        """
        theirs = {**self.defaults, **state["fingerprint"]}
        different = find_differences(theirs, self.values)
        self._refuse([key for key in different if key not in self.announced], theirs)
        step = state["progress"]["step"]
        lines = tuple(self._render_change(key, theirs.get(key), step) for key in different)
        if "optimizer.name" in different:
            state = {**state, "optimizer": None}
        if not set(_BEST).isdisjoint(different):
            # A value of one metric is not compared with that of another.
            progress = {key: value for key, value in state["progress"].items() if key != "record"}
            state = {**state, "progress": {**progress, "best": None, "best_epoch": 0}}
        return state, lines

    def _render_change(self, key: str, old: Any, step: int) -> str:
        line = f"changed since the checkpoint: {key} {old} -> {self.values[key]} (from step {step} on)"
        return f"{line}, with new moments" if key == "optimizer.name" else line

    def _refuse(self, different: list[str], theirs: dict[str, Any]) -> None:
        if not different:
            return
        details = ", ".join(f"{key} was {theirs.get(key)} and is {self.values.get(key)}" for key in different)
        raise CheckpointMismatchError(
            "the checkpoints here belong to another configuration",
            why=details,
            fix="use the same settings to resume, or go on in a new folder: --from CHECKPOINT --output-dir NEW",
        )


def make_fingerprint(name: str, settings: Settings, workload: BuiltWorkload) -> Fingerprint:
    """Make the fingerprint of a run of a recipe."""
    flat = flatten_settings(settings, changes=("never", "announced"))
    best = {
        "validate.best": settings.validate.best or workload.best,
        "validate.best_is": settings.validate.best_is or workload.best_is,
    }
    defaults = {key: _plain(value) for key, value in list_defaults(type(settings)).items()}
    return Fingerprint(
        values={
            "recipe": name,
            **{key: _plain(value) for key, value in flat.items()},
            **best,
            "model's tensors": _digest(workload.model),
        },
        announced=frozenset({*flatten_settings(settings, changes=("announced",)), *_BEST}),
        # Older checkpoints have the recipe's metric, and don't say how long their run was to be.
        defaults={
            **defaults,
            "validate.best": workload.best,
            "validate.best_is": workload.best_is,
            "epochs": settings.epochs,
            "max_steps": settings.max_steps,
        },
    )


def _plain(value: Any) -> Any:
    """Return a setting's value as a checkpoint holds it: paths and others as text."""
    return value if isinstance(value, (bool, int, float, str, tuple, list, dict, type(None))) else str(value)


def _digest(model: nn.Module) -> str:
    shapes = "\n".join(f"{key} {tuple(value.shape)} {value.dtype}" for key, value in model.state_dict().items())
    return hashlib.sha256(shapes.encode()).hexdigest()[:16]
