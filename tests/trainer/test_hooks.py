"""A recipe's hooks: when they are called, with what, and that a stop doesn't call one twice or never."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer import harness, line
from trainer.base.recipe import Hooks, Moment, Recipe

STEPS = line.STEPS_PER_EPOCH


class Calls:
    """Hooks that note their calls and change the model, so that a missing or repeated call changes the weights."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Moment]] = []

    def hooks(self) -> Hooks:
        return Hooks(on_step=self._on("step"), on_epoch=self._on("epoch"), on_end=self._on("end"))

    def _on(self, name: str) -> Any:
        def call(model: nn.Module, moment: Moment) -> None:
            self.seen.append((name, moment))
            with torch.no_grad():
                next(model.parameters()).mul_({"step": 0.99, "epoch": 0.9, "end": 0.5}[name])

        return call


def test_hooks_are_called_after_steps_epochs_and_the_run(tmp_path: Path) -> None:
    calls = Calls()
    assert line.train(line.recipe("epochs=2", hooks=calls.hooks()), tmp_path / "o") == 0
    order = [name for name, _ in calls.seen]
    assert order == [*["step"] * STEPS, "epoch", *["step"] * STEPS, "epoch", "end"]
    epochs = [(moment.step, moment.epoch, moment.fraction) for name, moment in calls.seen if name != "step"]
    assert epochs == [(STEPS, 0, 0.5), (2 * STEPS, 1, 1.0), (2 * STEPS, 2, 1.0)]
    assert [moment.step for name, moment in calls.seen if name == "step"] == list(range(1, 2 * STEPS + 1))


@pytest.mark.parametrize("settings", [("validate.every_steps=3",), ("max_steps=10", "validate.every_epochs=2")])
def test_hooks_change_the_same_bits_after_stops_anywhere(settings: tuple[str, ...], tmp_path: Path) -> None:
    """Stopped between steps and within validations, which come after an epoch's hook."""
    settings = (*settings, "micro_batch=4", "checkpoint.every_steps=2")

    def make() -> Recipe[Any]:
        return line.recipe(*settings, hooks=Calls().hooks())

    assert line.train(make(), tmp_path / "whole") == 0
    assert line.train_in_pieces(make, tmp_path / "cut", harness.StopAtLook) > 5
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_weights_are_validated_after_the_hook_of_their_epoch(tmp_path: Path) -> None:
    """What is saved as the best is what was validated."""
    seen: list[float] = []

    def note(model: nn.Module, moment: Moment) -> None:
        del moment
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.5)

    def measure(model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        seen.extend(float(parameter.detach().flatten()[0]) for parameter in model.parameters())
        return dict(line.measure(model, batch))

    recipe = line.recipe("epochs=1", hooks=Hooks(on_epoch=note), metrics=measure)
    assert line.train(recipe, tmp_path / "o") == 0
    assert set(seen) == {0.5}


class Counter:
    """Hooks that remember how often they were called, and what they saw, without the model."""

    def __init__(self) -> None:
        self.calls, self.fractions_S = 0, torch.zeros(0)
        self.loaded = 0

    def hooks(self) -> Hooks:
        return Hooks(on_step=self._count, state=self._state, load_state=self._load)

    def _count(self, _model: nn.Module, moment: Moment) -> None:
        self.calls += 1
        self.fractions_S = torch.cat([self.fractions_S, torch.tensor([moment.fraction])])

    def _state(self) -> Any:
        return {"calls": self.calls, "seen": (self.fractions_S,)}

    def _load(self, state: Any) -> None:
        self.calls, (self.fractions_S,) = state["calls"], state["seen"]
        self.loaded += 1


def test_hooks_remember_their_state_over_stops(tmp_path: Path) -> None:
    """A counter and a tensor are those of a run without stops; a new run loads nothing."""
    whole = Counter()
    assert line.train(line.recipe(hooks=whole.hooks()), tmp_path / "whole") == 0
    assert (whole.calls, whole.loaded) == (3 * STEPS, 0)
    last = [Counter()]

    def make() -> Recipe[Any]:
        last[:] = [Counter()]
        return line.recipe(hooks=last[0].hooks())

    assert line.train_in_pieces(make, tmp_path / "cut", harness.StopAtLook) > 2
    assert last[0].loaded == 1
    assert last[0].calls == whole.calls
    assert torch.equal(last[0].fractions_S, whole.fractions_S)
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_checkpoint_from_before_the_hooks_had_a_state_is_resumed(tmp_path: Path) -> None:
    """They start with what they have; a state that nobody loads any more is left aside."""
    stops = (harness.StopAtLook(STEPS), harness.StopAtLook(2 * STEPS), None)
    counter = Counter()
    recipes = [line.recipe(), line.recipe(hooks=counter.hooks()), line.recipe()]
    for recipe, stop in zip(recipes, stops, strict=True):
        assert line.train(recipe, tmp_path / "o", stop) == 0
    assert counter.loaded == 0
    assert 0 < counter.calls < 3 * STEPS
    assert harness.read_status(tmp_path / "o")["state"] == "succeeded"
