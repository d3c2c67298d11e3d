"""An optimizer's moments from a checkpoint: given to the right parameters, or refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer import harness, line
from tests.trainer.learners import SmallNet, make_learner_of, seeded, train_steps
from trainer.base.recipe import Recipe
from trainer.checkpoints.store import load_checkpoint
from trainer.start.moments import UnusableMomentsError, arrange_moments


class Reordered(nn.Module):
    """The parts of SmallNet, registered in another order."""

    def __init__(self) -> None:
        super().__init__()
        net = SmallNet()
        self.head, self.block = net.head, net.block


def test_moments_are_found_by_name_in_other_groups() -> None:
    """One group in the checkpoint, two here, in another order: each parameter gets its own."""
    learner = make_learner_of()
    train_steps(learner)
    saved = harness.copy_state(learner.optimizer.state_dict())
    names = [name for name, _ in learner.model.named_parameters()]
    new = seeded(Reordered)
    ours = dict(new.named_parameters())
    biases = [name for name in ours if "bias" in name]
    others = [name for name in ours if name not in biases]
    groups = [{"params": [ours[name] for name in part]} for part in (biases, others)]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    arranged = arrange_moments(saved, optimizer, new, order=names, is_ours=True)
    optimizer.load_state_dict(arranged)
    for number, name in enumerate(names):
        assert torch.equal(optimizer.state[ours[name]]["exp_avg"], saved["state"][number]["exp_avg"]), name


def test_moments_that_are_no_use_are_refused_with_the_reason() -> None:
    """Another kind of optimizer, another shape, another number of parameters, no torch optimizer at all."""
    learner = make_learner_of()
    train_steps(learner)
    saved = harness.copy_state(learner.optimizer.state_dict())
    names = [name for name, _ in learner.model.named_parameters()]
    swapped = harness.copy_state(saved)
    swapped["state"][0]["exp_avg_sq"] = torch.zeros(2, 2)
    half = harness.copy_state(saved)
    half["state"][1].pop("exp_avg_sq")
    fewer = harness.copy_state(saved)
    fewer["param_groups"][0]["params"].pop()
    sgd = make_learner_of(["optimizer.name=sgd"])
    for optimizer, state, why in (
        (sgd.optimizer, saved, "adam are no use to sgd"),
        (learner.optimizer, swapped, "exp_avg_sq of block.0.weight is 2x2 instead of 8x6"),
        (learner.optimizer, half, "block.0.bias has none of exp_avg, exp_avg_sq"),
        (learner.optimizer, fewer, "they are of 5 parameters"),
        (learner.optimizer, {"state": {}}, "not those of a torch optimizer"),
        (learner.optimizer, "adam", "not those of a torch optimizer"),
    ):
        model = sgd.model if optimizer is sgd.optimizer else learner.model
        with pytest.raises(UnusableMomentsError, match=why):
            arrange_moments(state, optimizer, model, order=names, is_ours=False)


def test_loaded_state_without_moments_leaves_new_ones() -> None:
    """SGD's first step may be skipped: its momentum is 0 then, not what was in memory."""
    learner = make_learner_of(["optimizer.name=sgd"])
    learner.load({**learner.state(), "optimizer": None})
    buffers = [values["momentum_buffer"] for values in learner.optimizer.state.values()]
    assert len(buffers) == 6
    assert not any(buffer.any() for buffer in buffers)


def test_scale_that_a_recipe_has_dropped_is_not_kept() -> None:
    """A group's lr_scale of the checkpoint's time would go on to multiply the rate."""
    learner = make_learner_of()
    state = harness.copy_state(learner.state())
    for group in state["optimizer"]["param_groups"]:
        group["lr_scale"] = 0.1
    learner.load(state)
    assert all("lr_scale" not in group for group in learner.optimizer.param_groups)


def test_groups_in_another_order_keep_their_moments(tmp_path: Path) -> None:
    """A recipe whose groups have been turned round since the checkpoint: as many, of the same shapes."""

    def make(step: int) -> Recipe[Any]:
        def groups(model: nn.Module) -> list[dict[str, Any]]:
            return [{"params": [parameter]} for parameter in list(model.parameters())[::step]]

        return line.recipe(parameter_groups=groups)

    assert line.train(make(1), tmp_path / "whole") == 0
    assert line.train(make(1), tmp_path / "turned", harness.StopAtLook(6)) == 0
    assert line.train(make(-1), tmp_path / "turned") == 0
    ours, theirs = (load_checkpoint(harness.newest_checkpoint(tmp_path / name)) for name in ("turned", "whole"))
    harness.assert_equal(ours["model"], theirs["model"], "weights")
