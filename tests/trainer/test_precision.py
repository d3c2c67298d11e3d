"""Mixed and half precision, and steps whose gradients overflow."""

import pytest
import torch

from tests.trainer import harness
from tests.trainer.learners import FAST, PlainNet, SmallNet, make_learner_of, random_batches, seeded, train_steps
from trainer.base.config import OptimizerSettings, Settings
from trainer.base.errors import BadRequestError, NonFiniteError
from trainer.base.recipe import Moment
from trainer.group.distributed import ALONE
from trainer.run.progress import Progress, dump_progress, restore_progress
from trainer.step.assembly import check_settings


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_computes_low_and_keeps_weights_high(amp: str) -> None:
    """The head's output has the lower precision, weights and gradients stay float32, and the loss falls."""
    net = SmallNet()
    types: list[torch.dtype] = []
    net.head.register_forward_hook(lambda _module, _inputs, output: types.append(output.dtype))
    learner = make_learner_of([f"compute.amp={amp}"], model=net)
    batch = next(random_batches())
    learner.model.train()
    losses = [learner.step(batch, rate=FAST, moment=Moment(step=number)).loss.item() for number in range(30)]
    assert set(types) == {torch.bfloat16 if amp == "bf16" else torch.float16}
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}
    assert losses[-1] < 0.8 * losses[0]


def test_fp16_scale_is_halved_when_gradients_overflow_and_kept_in_the_state() -> None:
    """Gradients far too large for fp16: each step is skipped and halves the scale, and a resumed learner has it."""
    learner = make_learner_of(["compute.amp=fp16"])
    before = learner.precision.state()["scale"]
    values_BF, labels_B = next(random_batches())
    learner.model.train()
    weights = harness.copy_state(learner.state()["model"])
    too_large = (values_BF * 1e30, labels_B)
    skipped = [learner.step(too_large, rate=FAST, moment=Moment(step=number)).skipped.item() for number in range(3)]
    assert skipped == [1.0, 1.0, 1.0]
    harness.assert_equal(learner.state()["model"], weights, "weights")
    assert learner.precision.state()["scale"] == before / 8
    assert learner.step((values_BF, labels_B), rate=FAST, moment=Moment(step=3)).skipped.item() == 0.0
    other = make_learner_of(["compute.amp=fp16"])
    other.load(harness.copy_state(learner.state()))
    assert other.precision.state() == learner.precision.state()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("clip_norm", [0, 1])
def test_step_without_a_finite_gradient_is_skipped_and_counted(optimizer: str, clip_norm: int) -> None:
    """Weights, moments, step count and running statistics are as before the step; the next one works."""
    learner = make_learner_of([f"optimizer.name={optimizer}", f"optimizer.clip_norm={clip_norm}"])
    train_steps(learner, steps=2)
    before = harness.copy_state(learner.state())
    values_BF, labels_B = next(random_batches())
    result = learner.step((values_BF * float("nan"), labels_B), rate=FAST, moment=Moment(step=2))
    assert result.skipped.item() == 1
    harness.assert_equal(learner.state(), before, "learner")
    assert learner.step((values_BF, labels_B), rate=FAST, moment=Moment(step=3)).skipped.item() == 0


@pytest.mark.parametrize(
    ("dtype", "optimizer"),
    [(torch.float64, "adamw"), (torch.bfloat16, "adamw"), (torch.float64, "sgd")],
)
def test_weights_of_another_precision_learn_and_skip(dtype: torch.dtype, optimizer: str) -> None:
    """A recipe's model may be all bf16, or double."""
    learner = make_learner_of([f"optimizer.name={optimizer}"], model=SmallNet(dropout=0.0).to(dtype))
    values_BF, labels_B = next(random_batches())
    before = harness.copy_state(learner.state())
    assert (
        learner.step((values_BF.to(dtype) * float("nan"), labels_B), rate=FAST, moment=Moment(step=0)).skipped.item()
        == 1
    )
    harness.assert_equal(learner.state()["model"], before["model"], "weights")
    assert learner.step((values_BF.to(dtype), labels_B), rate=1.0, moment=Moment(step=1)).skipped.item() == 0
    assert not torch.equal(learner.parameters[0], before["model"]["block.0.weight"])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_skipped_first_step_leaves_nothing_in_the_momentum(momentum: float) -> None:
    """Torch would leave uninitialised memory in it; our run ends as if the step hadn't been."""
    skipping, steady = (
        make_learner_of(["optimizer.name=sgd", f"optimizer.momentum={momentum}"], model=seeded(PlainNet))
        for _ in range(2)
    )
    values_BF, labels_B = next(random_batches())
    dirt = [torch.full((size,), 1e6) for size in (8, 24, 48) for _ in range(50)]
    del dirt  # the next allocation finds this value in its memory
    skipping.step((values_BF * float("nan"), labels_B), rate=FAST, moment=Moment(step=0))
    for learner in (skipping, steady):
        learner.step((values_BF, labels_B), rate=FAST, moment=Moment(step=1))
    harness.assert_equal(skipping.state()["model"], steady.state()["model"], "weights")


def test_half_precision_weights_with_sgd_on_a_cpu_are_refused() -> None:
    """Torch's fused SGD would train nothing, without a message."""
    settings = Settings(optimizer=OptimizerSettings(name="sgd"))
    check_settings(settings, SmallNet(), ALONE)
    with pytest.raises(BadRequestError, match="does not train this model on a CPU"):
        check_settings(settings, SmallNet().bfloat16(), ALONE)


def test_many_skipped_steps_in_a_row_end_the_run() -> None:
    """Three are allowed: the third raises, and a good one in between resets the count."""
    learner, progress = make_learner_of(), Progress()
    values_BF, labels_B = next(random_batches())
    for scale in (float("nan"), float("nan"), 1.0, float("inf"), float("nan")):
        progress.add(learner.step((values_BF * scale, labels_B), rate=FAST, moment=Moment(step=0)))
    progress.collect_pending()
    progress.check_skips(3)
    assert (progress.window.skipped, progress.skipped_in_a_row) == (4, 2)
    restored = restore_progress(dump_progress(progress, ALONE))
    assert restored == progress
    restored.add(learner.step((values_BF * float("nan"), labels_B), rate=FAST, moment=Moment(step=0)))
    restored.collect_pending()
    with pytest.raises(NonFiniteError, match="3 steps in a row, up to step 6"):
        restored.check_skips(3)
