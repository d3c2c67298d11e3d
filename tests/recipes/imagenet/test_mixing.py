"""Mixup, its loss and the metrics, against NumPy in float64."""

import io

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from trainer.recipes.imagenet.mixing import measure, mix_samples, smoothed_cross_entropy
from trainer.recipes.imagenet.pictures import Prepare

# Shape legend: B batch, C channels, H height, W width, K classes.
CLASSES = 7


def make_samples(count: int = 5) -> list[tuple[torch.Tensor, torch.Tensor, float]]:
    rng = np.random.default_rng(0)
    return [
        (
            torch.from_numpy(rng.normal(size=(3, 4, 4)).astype(np.float32)),
            torch.tensor(int(rng.integers(CLASSES))),
            float(rng.beta(0.2, 0.2)),
        )
        for _ in range(count)
    ]


def log_softmax(scores_BK: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted_BK = scores_BK - scores_BK.max(1, keepdims=True)
    return np.asarray(shifted_BK - np.log(np.exp(shifted_BK).sum(1, keepdims=True)))


def test_each_picture_is_mixed_with_the_one_before_it_by_its_own_share() -> None:
    samples = make_samples()
    pictures_BCHW, labels_B, others_B, shares_B = mix_samples(samples)
    for number, (picture_CHW, label, share) in enumerate(samples):
        other_CHW, other_label, _ = samples[number - 1]
        torch.testing.assert_close(pictures_BCHW[number], share * picture_CHW + (1 - share) * other_CHW)
        assert (labels_B[number], others_B[number]) == (label, other_label)
        assert float(shares_B[number]) == pytest.approx(share)


def test_validation_pictures_are_not_mixed() -> None:
    samples = [sample[:2] for sample in make_samples()]
    pictures_BCHW, labels_B = mix_samples(samples)
    assert torch.equal(pictures_BCHW, torch.stack([sample[0] for sample in samples]))
    assert labels_B.tolist() == [int(sample[1]) for sample in samples]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_with_the_mixed_smoothed_labels(smoothing: float) -> None:
    """Zhang et al. 2018, eq. in section 2, with one-hot labels that give `smoothing` to all classes evenly."""
    batch = mix_samples(make_samples())
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, CLASSES)).double()
    batch = (batch[0].double(), batch[1], batch[2], batch[3].double())
    loss = smoothed_cross_entropy(smoothing)(model, batch).detach()
    with torch.no_grad():
        scores_BK = model(batch[0]).numpy()
    share_B1 = batch[3].numpy()[:, None]
    hard_BK = share_B1 * np.eye(CLASSES)[batch[1]] + (1 - share_B1) * np.eye(CLASSES)[batch[2]]
    labels_BK = (1 - smoothing) * hard_BK + smoothing / CLASSES
    expected = -(labels_BK * log_softmax(scores_BK)).sum(1).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-12)


def test_the_loss_of_pictures_that_are_not_mixed_has_smoothed_labels() -> None:
    batch = mix_samples([sample[:2] for sample in make_samples()])
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, CLASSES))
    with torch.no_grad():
        loss, scores_BK = smoothed_cross_entropy(0.1)(model, batch), model(batch[0]).double().numpy()
    labels_BK = 0.9 * np.eye(CLASSES)[batch[1]] + 0.1 / CLASSES
    assert float(loss) == pytest.approx(-(labels_BK * log_softmax(scores_BK)).sum(1).mean(), rel=1e-6)


def test_shares_have_the_beta_distribution() -> None:
    """Its mean is 1/2, its variance 1 / (4 (2 a + 1)): 0.179 for a = 0.2."""
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    prepare = Prepare(crop=lambda picture, _: picture, mixup=0.2)
    shares = [prepare(io.BytesIO(file.getvalue()), 0, "", np.random.default_rng(seed))[2] for seed in range(2000)]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.04)
    assert np.var(shares) == pytest.approx(1 / (4 * 1.4), abs=0.01)


@pytest.mark.parametrize("classes", [3, 20])
def test_top_1_and_top_5_count_the_hits(classes: int) -> None:
    """As sorting in NumPy finds them; with three classes each is among the first five."""
    generator = torch.Generator().manual_seed(0)
    scores_BK = torch.randn(64, classes, generator=generator)
    labels_B = torch.randint(classes, (64,), generator=generator)
    measured = measure(nn.Identity(), (scores_BK, labels_B))
    ranked_BK = np.argsort(-scores_BK.numpy(), axis=1)
    hits_BK = ranked_BK == labels_B.numpy()[:, None]
    assert measured["top1"].tolist() == hits_BK[:, 0].astype(float).tolist()
    assert measured["top5"].tolist() == hits_BK[:, :5].any(1).astype(float).tolist()
    expected_B = -log_softmax(scores_BK.double().numpy())[np.arange(64), labels_B]
    assert measured["loss"].tolist() == pytest.approx(expected_B, rel=1e-5)
