"""One optimizer step: accumulation, clipping, EMA and memory formats."""

import pytest
import torch
from torch import nn

from tests.trainer import harness
from tests.trainer.learners import (
    FAST,
    PlainNet,
    SmallNet,
    make_learner_of,
    random_batches,
    seeded,
    train_steps,
)
from trainer.base.recipe import Moment
from trainer.run.progress import Progress
from trainer.step.learner import StepResult


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_accumulated_gradient_is_that_of_the_whole_batch(micro_batch: int) -> None:
    """After 5 steps the weights agree to rounding, whatever the micro-batch."""
    whole = train_steps(make_learner_of(model=seeded(PlainNet)))
    cut = train_steps(make_learner_of([f"micro_batch={micro_batch}"], model=seeded(PlainNet)))
    for name, value in whole.items():
        torch.testing.assert_close(cut[name], value, rtol=1e-4, atol=1e-6)


def test_means_do_not_depend_on_when_the_figures_are_collected() -> None:
    """After each step, after all 600, or when the device has too many: the same sums to the bit."""
    draw = torch.Generator().manual_seed(0)
    losses = torch.rand(600, generator=draw)
    every, once = Progress(), Progress()
    for loss in losses:
        for progress in (every, once):
            progress.add(StepResult(loss, loss * 3, torch.zeros(())))
        every.collect_pending()
    assert len(once.pending) < 300
    once.collect_pending()
    assert once == every
    assert once.window.steps == once.step == 600
    assert once.window.loss == pytest.approx(losses.double().sum().item(), rel=1e-12)


def test_the_average_follows_the_weights_and_is_evaluated() -> None:
    """The EMA equals the formula, with the decay growing from 0.1, and leaves the model alone."""
    averaged, plain = (
        make_learner_of(settings, model=seeded(lambda: SmallNet(dropout=0))) for settings in (["ema_decay=0.5"], [])
    )
    names = [name for name, _ in averaged.model.named_parameters()]
    expected = {name: averaged.model.state_dict()[name].clone() for name in names}
    batches, same = random_batches(), random_batches()
    for number in range(6):
        averaged.step(next(batches), rate=FAST, moment=Moment(step=number))
        plain.step(next(same), rate=FAST, moment=Moment(step=number))
        decay = min(0.5, (1 + number) / (10 + number))
        for name, value in averaged.model.named_parameters():
            expected[name] += (1 - decay) * (value.detach() - expected[name])
    found = averaged.evaluated.state_dict()
    for name in names:
        torch.testing.assert_close(found[name], expected[name])
    harness.assert_equal(dict(averaged.model.state_dict()), dict(plain.model.state_dict()), "model")
    averaged.prepare_evaluation()
    for ours, theirs in zip(averaged.evaluated.buffers(), averaged.model.buffers(), strict=True):
        assert torch.equal(ours, theirs)
    assert plain.evaluated is plain.model


def test_clipping_bounds_the_update_by_the_whole_batchs_norm() -> None:
    """With SGD at rate 1 the weights move by exactly the clipped gradient."""
    settings = ["optimizer.name=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.clip_norm=0.01"]
    learner = make_learner_of([*settings, "micro_batch=2"], model=seeded(PlainNet))
    before = torch.cat([value.detach().flatten().clone() for value in learner.parameters])
    result = learner.step(next(random_batches()), rate=1.0, moment=Moment(step=0))
    after = torch.cat([value.detach().flatten() for value in learner.parameters])
    assert result.grad_norm.item() > 0.01
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "muon"])
@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_settings_are_the_options_of_every_group(name: str, momentum: float) -> None:
    """Nesterov's momentum wherever there is any; fused where torch has that."""
    settings = [f"optimizer.name={name}", "optimizer.learning_rate=0.25", "optimizer.weight_decay=0.125"]
    settings += [f"optimizer.momentum={momentum}", "optimizer.betas=0.8,0.9"]
    for group in make_learner_of(settings, model=PlainNet()).optimizer.param_groups:
        assert (group["lr"], group["weight_decay"]) == (0.25, 0.125)
        if name == "sgd" or group.get("muon"):
            assert (group["momentum"], group["nesterov"]) == (momentum, momentum > 0)
        else:
            assert group["betas"] == (0.8, 0.9)
        assert group.get("fused", True)


def test_frozen_weights_are_left_alone_if_only_trained_ones_are_saved() -> None:
    """The state lacks them, and a model that has others keeps them; its EMA too."""

    def frozen(bias: float) -> nn.Module:
        model = seeded(PlainNet)
        nn.init.constant_(model.get_parameter("block.0.bias"), bias)
        model.get_submodule("block").requires_grad_(requires_grad=False)
        return model

    ours, theirs = (
        make_learner_of(["ema_decay=0.5"], model=frozen(bias), changes={"trainable_only": True}) for bias in (1.0, 2.0)
    )
    train_steps(ours, steps=2)
    state = harness.copy_state(ours.state())
    assert list(state["model"]) == list(state["average"]) == ["head.weight", "head.bias"]
    theirs.load(state)
    harness.assert_equal(theirs.state(), ours.state(), "trained")
    for model in (theirs.model, theirs.evaluated):
        assert set(model.get_parameter("block.0.bias").tolist()) == {2.0}


def test_moments_of_another_memory_format_are_resumed() -> None:
    """Started with channels last and resumed without it: the same next steps, up to rounding."""

    def conv_net() -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (3, 1, 2)), nn.Conv2d(3, 4, (1, 2)), nn.Flatten(), nn.Linear(4, 3))

    turned, plain = (
        make_learner_of([f"compute.channels_last={value}"], model=seeded(conv_net)) for value in ("on", "off")
    )
    train_steps(turned, steps=3)
    plain.load(harness.copy_state(turned.state()))
    for learner in (turned, plain):
        train_steps(learner, steps=2)
    for ours, theirs in zip(plain.parameters, turned.parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_channels_last_weights_learn_the_same() -> None:
    """Convolutions' weights stay channels last; the result agrees to rounding."""

    def conv_net() -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(8, 3))

    plain, turned = (
        make_learner_of([f"compute.channels_last={value}"], model=seeded(conv_net)) for value in ("off", "on")
    )
    expected, found = train_steps(plain), train_steps(turned)
    weight = turned.model.get_submodule("1").weight
    assert isinstance(weight, torch.Tensor)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)
