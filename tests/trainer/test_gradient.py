"""The gradient of a batch whose samples don't count the same, and the optimizer's step with it."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.trainer import harness
from tests.trainer.learners import FAST, FEATURES, PlainNet, make_learner_of, random_batches, seeded
from trainer.base.errors import BadRequestError
from trainer.base.recipe import Moment
from trainer.base.sources import Batch
from trainer.step.learner import Learner
from trainer.step.update import Update

# Shape legend: B batch, F features, K classes.
PADDING = -100
UNEVEN = [3, PADDING, PADDING, PADDING, 0, 1, 2, PADDING]
"""One label in the first half, three in the second."""


def mean_of_labels(model: nn.Module, batch: Batch) -> torch.Tensor:
    """The mean over what isn't padding."""
    values_BF, labels_B = batch
    return functional.cross_entropy(model(values_BF), labels_B, ignore_index=PADDING)


def count_labels(batch: Batch) -> torch.Tensor:
    labels_B: torch.Tensor = batch[1]
    return (labels_B != PADDING).sum()


def make_uneven_batch() -> Batch:
    values_BF, _ = next(random_batches())
    return values_BF, torch.tensor(UNEVEN).clamp(max=2)


def sgd_step(micro_batch: int, weight: object) -> tuple[Learner, float]:
    """Make one step whose change of the weights is the gradient."""
    settings = ["optimizer.name=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.clip_norm=0"]
    changes = {"loss": mean_of_labels, "weight": weight}
    learner = make_learner_of([*settings, f"micro_batch={micro_batch}"], model=seeded(PlainNet), changes=changes)
    result = learner.step(make_uneven_batch(), rate=1.0, moment=Moment(step=0))
    return learner, result.loss.item()


@pytest.mark.parametrize("weight", [count_labels, lambda batch: float(count_labels(batch))], ids=["tensor", "number"])
def test_micro_batches_count_by_their_labels(weight: object) -> None:
    """One label in the first micro-batch, three in the second: gradient and loss are those of the whole batch."""
    whole, loss = sgd_step(8, None)
    cut, cut_loss = sgd_step(4, weight)
    assert cut_loss == pytest.approx(loss, rel=1e-6)
    for ours, theirs in zip(cut.parameters, whole.parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    assert sgd_step(4, None)[1] != pytest.approx(loss, rel=1e-3)


WEIGHTS = {"tensor": count_labels, "number": lambda batch: float(count_labels(batch))}


def mean_of_counted(model: nn.Module, batch: Batch) -> torch.Tensor:
    """As mean_of_labels, but 0 for a batch without labels."""
    losses = functional.cross_entropy(model(batch[0]), batch[1], ignore_index=PADDING, reduction="sum")
    return losses / count_labels(batch).clamp(min=1)


@pytest.mark.parametrize("loss", [mean_of_labels, mean_of_counted], ids=["NaN of nothing", "0 of nothing"])
@pytest.mark.parametrize("micro_batch", [8, 4])
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_batch_in_which_nothing_counts_is_a_loss_of_zero(weight: object, micro_batch: int, loss: object) -> None:
    """And a step with a gradient of zero, instead of a division by zero or NaN."""
    changes = {"loss": loss, "weight": weight}
    learner = make_learner_of([f"micro_batch={micro_batch}"], model=seeded(PlainNet), changes=changes)
    batch = (torch.randn(8, FEATURES), torch.full((8,), PADDING))
    result = learner.step(batch, rate=FAST, moment=Moment(step=0))
    assert (result.loss.item(), result.grad_norm.item(), result.skipped.item()) == (0, 0, 0)


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_micro_batch_in_which_nothing_counts_adds_nothing(weight: object) -> None:
    """The loss and the gradient are those of the other half alone, although the mean over nothing is NaN."""
    values_BF, _ = next(random_batches())
    batch = (values_BF, torch.tensor([0, 1, 2, 0, *[PADDING] * 4]))
    changes = {"loss": mean_of_labels, "weight": weight}
    results = []
    for settings in ["micro_batch=4"], ["micro_batch=8"]:
        learner = make_learner_of(settings, model=seeded(PlainNet), changes=changes)
        results.append(learner.step(batch, rate=FAST, moment=Moment(step=0)))
    assert results[0].loss.item() == pytest.approx(results[1].loss.item(), rel=1e-6)
    assert results[0].grad_norm.item() == pytest.approx(results[1].grad_norm.item(), rel=1e-5)


def test_learner_expects_batches_of_another_size_when_told() -> None:
    """Half the samples, in micro-batches of two: the loss and the gradient are those of the half."""
    values_BF, labels_B = make_uneven_batch()
    half = (values_BF[4:], labels_B[4:])
    results = []
    for micro_batch in (4, 2):
        learner = make_learner_of(model=seeded(PlainNet), changes={"loss": mean_of_labels, "weight": count_labels})
        learner.expect_share(4, micro_batch=micro_batch)
        assert learner.micro_batch == micro_batch
        results.append(learner.step(half, rate=FAST, moment=Moment(step=0)))
    assert results[0].loss.item() == pytest.approx(mean_of_labels(seeded(PlainNet), half).item(), rel=1e-6)
    assert results[0].loss.item() == pytest.approx(results[1].loss.item(), rel=1e-6)
    assert results[0].grad_norm.item() == pytest.approx(results[1].grad_norm.item(), rel=1e-5)


POINTS = [3, 1, 2, 2, 4, 1, 1, 2]
"""Of each sample of a batch."""


def mean_of_points(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean over all points, of all samples of a batch that a collate concatenated."""
    assert batch["counts"].sum() == len(batch["points"])
    mean: torch.Tensor = model(batch["points"]).square().mean()
    return mean


def concatenated() -> Batch:
    return {"points": torch.randn(sum(POINTS), FEATURES), "counts": torch.tensor(POINTS)}


def test_concatenated_batch_is_computed_whole() -> None:
    """Its first tensor has more rows than the batch has samples: nothing is cut off."""
    learner = make_learner_of(model=seeded(PlainNet), changes={"loss": mean_of_points})
    batch = concatenated()
    expected = mean_of_points(seeded(PlainNet), batch).item()
    assert learner.step(batch, rate=FAST, moment=Moment(step=0)).loss.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (concatenated(), r"batch\['points'\] has 16 rows"),
        ([torch.zeros(8, FEATURES), torch.zeros(8, dtype=torch.long)], "(?s)batch has 2 rows.*tuple or dict"),
        ((torch.zeros(8, FEATURES), torch.zeros(7)), r"batch\[1\] has 7 rows"),
        ({"scale": torch.tensor(1.0)}, "it has no samples"),
    ],
    ids=["concatenated", "list of tensors", "uneven", "no samples"],
)
def test_batch_that_cannot_be_cut_into_micro_batches_is_refused(batch: Batch, text: str) -> None:
    """With the part that has no row per sample, and what to do."""
    learner = make_learner_of(["micro_batch=4"])
    with pytest.raises(BadRequestError, match=text):
        learner.step(batch, rate=FAST, moment=Moment(step=0))


def test_each_groups_rate_is_scaled() -> None:
    """With SGD and the same gradient a group with lr_scale 0.5 moves half as far."""
    weights = [nn.Parameter(torch.zeros(3)) for _ in range(2)]
    groups: list[dict[str, Any]] = [{"params": [weights[0]]}, {"params": [weights[1]], "lr_scale": 0.5}]
    update = make_update(torch.optim.SGD(groups, lr=1.0), weights)
    for weight in weights:
        weight.grad = torch.ones(3)
    update.apply(0.1)
    assert torch.equal(weights[0], torch.full((3,), -0.1))
    assert torch.equal(weights[1], torch.full((3,), -0.05))


@pytest.mark.parametrize("fused", [True, False])
def test_optimizer_skips_a_gradient_that_is_not_finite(fused: bool) -> None:
    """Whether the device or the host decides: weights and moments stay, and the next step works."""
    weight = nn.Parameter(torch.zeros(3))
    update = make_update(torch.optim.AdamW([weight], lr=1.0, fused=fused), [weight])
    weight.grad = torch.tensor([1.0, math.nan, 1.0])
    assert update.apply(FAST)[1].item() == 1
    assert torch.equal(weight, torch.zeros(3))
    weight.grad = torch.ones(3)
    assert update.apply(FAST)[1].item() == 0
    expected = nn.Parameter(torch.zeros(3))
    expected.grad = torch.ones(3)
    torch.optim.AdamW([expected], lr=FAST).step()
    torch.testing.assert_close(weight, expected)


def make_update(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter]) -> Update:
    precision = make_learner_of().precision
    return Update(optimizer=optimizer, parameters=weights, precision=precision, clip_norm=0)


def _noise_and_model(model: nn.Module, batch: Batch) -> tuple[torch.Tensor, nn.Module]:
    assert isinstance(model, Noisy)
    return model.noise(batch), model


class Noisy(PlainNet):
    """A model whose loss needs more than its forward pass."""

    def noise(self, values_BF: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self(values_BF + 1)
        return logits_BK


def test_evaluation_calls_any_function_with_the_model_that_is_evaluated() -> None:
    """The EMA if there is one, and more than its forward pass."""
    for settings in ([], ["ema_decay=0.5"]):
        learner = make_learner_of(settings, model=Noisy())
        values_BF = torch.zeros(2, FEATURES)
        found, model = learner.call_evaluated(_noise_and_model, values_BF)
        assert model is learner.evaluated
        harness.assert_equal({"logits": found}, {"logits": _noise_and_model(model, values_BF)[0]}, "logits")
