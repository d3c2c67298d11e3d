"""Each part of the loss, against NumPy and scipy in float64, and its gradient against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage, special

from trainer.recipes.surface.losses import (
    LossSettings,
    boundary_loss,
    dice_loss,
    focal_loss,
    is_counted,
    single_scale_loss,
    skeleton_recall_loss,
    surface_loss,
)

RNG = np.random.default_rng(11)
LOGITS = RNG.normal(0, 2, (2, 3, 4, 5, 6))
LABELS = RNG.integers(0, 3, (2, 4, 5, 6))
SKELETON = (LABELS == 1) & (RNG.random(LABELS.shape) < 0.5)
ALPHA = np.array([0.3, 3.0, 0.3])
ALL = LossSettings(ignore_index=-1)
Array = NDArray[Any]


def reference(logits: Array, labels: Array, skeleton: Array, *, ignore: int, gamma: float = 2.0) -> dict[str, float]:
    """The four parts in NumPy: of each sample, then the mean of the samples."""
    samples = [
        reference_of_one(*each, ignore=ignore, gamma=gamma) for each in zip(logits, labels, skeleton, strict=True)
    ]
    return {part: float(np.mean([sample[part] for sample in samples])) for part in samples[0]}


def reference_of_one(
    logits: Array, labels: Array, skeleton: Array, *, ignore: int, gamma: float
) -> dict[str, float | np.floating[Any]]:
    """The four parts of one sample."""
    p = special.softmax(logits, axis=0)
    counted = labels != ignore
    true = np.take_along_axis(p, np.where(counted, labels, 0)[None], 0)[0]
    focal = -(ALPHA[np.where(counted, labels, 0)] * (1 - true) ** gamma * np.log(true))[counted].mean()
    classes = [k for k in range(3) if k != ignore]
    dice = []
    for k in classes:
        pk, tk = p[k][counted], (labels == k)[counted]
        dice.append(1 - (2 * (pk * tk).sum() + 1) / (pk.sum() + tk.sum() + 1))
    surface = labels == 1
    signed = ndimage.distance_transform_edt(~surface) - ndimage.distance_transform_edt(surface)
    return {
        "focal": focal,
        "dice": np.average(dice, weights=ALPHA[classes]),
        "recall": 1 - (p[1][skeleton].sum() + 1) / (skeleton.sum() + 1),
        "boundary": (p[1] * signed)[counted].mean(),
    }


def tensors(logits: Array = LOGITS, labels: Array = LABELS) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(logits), torch.from_numpy(labels)


@pytest.mark.parametrize("ignore", [-1, 2])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_loss_equals_numpy(ignore: int, gamma: float) -> None:
    """Over the voxels that are labelled; with gamma 0 it is the weighted cross-entropy."""
    logits, labels = tensors()
    ours = focal_loss(logits, labels, labels != ignore, torch.from_numpy(ALPHA), gamma)
    expected = reference(LOGITS, LABELS, SKELETON, ignore=ignore, gamma=gamma)["focal"]
    assert float(ours) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ignore", [-1, 2])
def test_dice_loss_equals_numpy(ignore: int) -> None:
    """The ignored class has no share in the mean."""
    logits, labels = tensors()
    ours = dice_loss(logits, labels, labels != ignore, torch.from_numpy(ALPHA), ignored=ignore)
    assert float(ours) == pytest.approx(reference(LOGITS, LABELS, SKELETON, ignore=ignore)["dice"], rel=1e-12)


def test_skeleton_recall_loss_equals_numpy_and_its_closed_forms() -> None:
    """Nothing of a sample's skeleton predicted: 1 - 1/(n + 1); all of it: 0, wherever else there are predictions."""
    surface, skeleton = torch.from_numpy(LOGITS).softmax(1)[:, 1], torch.from_numpy(SKELETON)
    expected = reference(LOGITS, LABELS, SKELETON, ignore=-1)["recall"]
    assert float(skeleton_recall_loss(surface, skeleton)) == pytest.approx(expected, rel=1e-12)
    assert float(skeleton_recall_loss(torch.ones_like(surface), skeleton)) == pytest.approx(0, abs=1e-12)
    nothing = skeleton_recall_loss(torch.zeros_like(surface), skeleton)
    assert float(nothing) == pytest.approx(np.mean([1 - 1 / (each.sum() + 1) for each in SKELETON]), rel=1e-12)


def test_sample_without_surface_has_no_skeleton_to_recall_and_dice_for_what_is_predicted() -> None:
    """Recall is 0, whatever is predicted; Dice is 1 - 1/(s + 1) of a predicted volume s, so that nothing costs 0."""
    empty = torch.zeros(1, 4, 4, 4, dtype=torch.long)
    surface = torch.rand(1, 4, 4, 4, dtype=torch.float64)
    assert float(skeleton_recall_loss(surface, empty == 1)) == 0
    only_surface = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    for logit in (-50.0, 0.0):
        logits = torch.zeros(1, 3, 4, 4, 4, dtype=torch.float64)
        logits[:, 1] = logit
        size = float(logits.softmax(1)[:, 1].sum())
        ours = dice_loss(logits, empty, empty >= 0, only_surface, ignored=2)
        assert float(ours) == pytest.approx(1 - 1 / (size + 1), abs=1e-12)


@pytest.mark.parametrize("ignore", [-1, 2])
def test_boundary_loss_equals_scipys_distances_times_probability(ignore: int) -> None:
    """Averaged over the labelled voxels of each sample, then over the samples."""
    logits, labels = tensors()
    ours = boundary_loss(logits.softmax(1)[:, 1], labels == 1, labels != ignore)
    expected = reference(LOGITS, LABELS, SKELETON, ignore=ignore)["boundary"]
    assert float(ours) == pytest.approx(expected, rel=1e-6)  # distances are float32


def test_boundary_loss_without_surface_is_the_mean_probability_and_with_nothing_else_its_opposite() -> None:
    """Where there is no boundary there is no distance."""
    surface = torch.rand(1, 3, 3, 3, dtype=torch.float64)
    empty = torch.zeros(1, 3, 3, 3, dtype=torch.bool)
    assert float(boundary_loss(surface, empty, ~empty)) == pytest.approx(float(surface.mean()))
    assert float(boundary_loss(surface, ~empty, ~empty)) == pytest.approx(float(1 - surface.mean()))


def test_total_is_the_weighted_sum_of_the_parts() -> None:
    """.3 (focal + Dice) + .3 recall + .2 boundary."""
    logits, labels = tensors()
    for ignore in (-1, 2):
        parts = reference(LOGITS, LABELS, SKELETON, ignore=ignore)
        expected = 0.3 * (parts["focal"] + parts["dice"]) + 0.3 * parts["recall"] + 0.2 * parts["boundary"]
        ours = single_scale_loss(logits, labels, torch.from_numpy(SKELETON), LossSettings(ignore_index=ignore))
        assert float(ours) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("ignore", [-1, 2])
def test_micro_batches_add_up_to_the_batch(ignore: int) -> None:
    """Loss and gradient, for any size of them: with few labelled voxels, without surface, and all surface."""
    labels, settings = np.concatenate([LABELS, LABELS]), LossSettings(ignore_index=ignore)
    labels[1, 1:], labels[2], labels[3] = 2, 0, 1
    skeleton = torch.from_numpy((labels == 1) & np.concatenate([SKELETON, SKELETON]))
    logits = torch.from_numpy(np.concatenate([LOGITS, 2 * LOGITS])).requires_grad_()
    whole = surface_loss([logits, logits[..., ::2, ::2, ::2]], torch.from_numpy(labels), skeleton, settings)
    (gradient,) = torch.autograd.grad(whole, logits)
    for count in (4, 2):
        parts = [
            surface_loss([part, part[..., ::2, ::2, ::2]], part_labels, part_skeleton, settings)
            for part, part_labels, part_skeleton in zip(
                logits.chunk(count), torch.from_numpy(labels).chunk(count), skeleton.chunk(count), strict=True
            )
        ]
        mean = torch.stack(parts).mean()
        assert mean.item() == pytest.approx(whole.item(), rel=1e-12)
        torch.testing.assert_close(torch.autograd.grad(mean, logits)[0], gradient, rtol=1e-9, atol=1e-12)


def test_deep_supervision_adds_coarse_losses_with_halving_weights() -> None:
    """1, 1/2, 1/4 and 1/8, each against every 2nd, 4th and 8th voxel of the labels."""
    rng = np.random.default_rng(2)
    labels, skeleton = rng.integers(0, 3, (1, 16, 16, 16)), rng.random((1, 16, 16, 16)) < 0.2
    outputs = [rng.normal(size=(1, 3, side, side, side)) for side in (16, 8, 4, 2)]
    expected = 0.0
    for level, (logits, weight) in enumerate(zip(outputs, (1, 0.5, 0.25, 0.125), strict=True)):
        step = slice(None, None, 2**level)
        coarse = [torch.from_numpy(each[:, step, step, step]) for each in (labels, skeleton)]
        expected += weight * float(single_scale_loss(torch.from_numpy(logits), coarse[0], coarse[1], ALL))
    scales = [torch.from_numpy(logits) for logits in outputs]
    ours = surface_loss(scales, torch.from_numpy(labels), torch.from_numpy(skeleton), ALL)
    assert float(ours) == pytest.approx(expected, rel=1e-12)
    assert float(surface_loss(scales[0], torch.from_numpy(labels), torch.from_numpy(skeleton), ALL)) < float(ours)


@pytest.mark.parametrize("part", ["focal", "dice", "recall", "boundary", "total"])
def test_gradients_equal_finite_differences(part: str) -> None:
    """In float64."""
    _, labels = tensors()
    skeleton, counted, alpha = torch.from_numpy(SKELETON), labels != 2, torch.from_numpy(ALPHA)
    functions = {
        "focal": lambda x: focal_loss(x, labels, counted, alpha, 2.0),
        "dice": lambda x: dice_loss(x, labels, counted, alpha, ignored=2),
        "recall": lambda x: skeleton_recall_loss(x.softmax(1)[:, 1], skeleton),
        "boundary": lambda x: boundary_loss(x.softmax(1)[:, 1], labels == 1, counted),
        "total": lambda x: single_scale_loss(x, labels, skeleton, LossSettings()),
    }
    torch.autograd.gradcheck(functions[part], torch.from_numpy(LOGITS).requires_grad_(), fast_mode=True)


def test_unlabelled_voxels_change_nothing() -> None:
    """Whatever is predicted there, the loss is the same, and has no gradient."""
    logits, labels = tensors()
    leaf = logits.clone().requires_grad_()
    loss = single_scale_loss(leaf, labels, torch.from_numpy(SKELETON), LossSettings())
    (gradient,) = torch.autograd.grad(loss, leaf)
    unlabelled = (labels == 2)[:, None].expand_as(gradient)
    assert not gradient[unlabelled].any()
    other = torch.where(unlabelled, logits + 7 * torch.randn_like(logits), logits)
    again = single_scale_loss(other, labels, torch.from_numpy(SKELETON), LossSettings())
    assert float(again) == pytest.approx(loss.item(), rel=1e-12)


def test_loss_of_half_precision_logits_is_finite_however_wrong_they_are() -> None:
    """The logarithm of a probability that 16 bits can't hold would be infinite: the original's v3 ended so."""
    logits = torch.zeros(1, 3, 2, 2, 2, dtype=torch.float16)
    logits[:, 0] = 300
    labels = torch.ones(1, 2, 2, 2, dtype=torch.uint8)
    labels[0, 0, 0, 0] = 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = surface_loss(logits, labels, labels == 1, ALL)
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)


@pytest.mark.parametrize(("ignored", "counted"), [(-1, [True] * 4), (2, [True, True, False, True]), (256, [True] * 4)])
def test_no_label_of_8_bits_is_taken_for_an_index_that_it_cannot_have(ignored: int, counted: list[bool]) -> None:
    """In 8 bits -1 is 255, and 256 is 0."""
    labels = torch.tensor([0, 1, 2, 255], dtype=torch.uint8)
    assert is_counted(labels, ignored).tolist() == counted
