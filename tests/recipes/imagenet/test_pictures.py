"""Crops and random changes of pictures, against Pillow, SciPy, colorsys and closed forms."""

import colorsys
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from trainer.base.errors import TrainerError
from trainer.recipes.imagenet import augmentation
from trainer.recipes.imagenet.pictures import Prepare, augment, middle_square, normalise, random_box, random_square

# Shape legend: H height, W width, C colours.
GREY_C = np.array([0.299, 0.587, 0.114])
"""ITU-R BT.601, section 2.5.1: luma of red, green and blue."""


def make_picture(height: int = 48, width: int = 64) -> Image.Image:
    """Draw random, but smooth colours."""
    rng = np.random.default_rng(1)
    coarse_HWC = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse_HWC).resize((width, height), Image.Resampling.BICUBIC)


def values(picture: Image.Image) -> NDArray[np.float64]:
    return np.asarray(picture, dtype=np.float64)


def test_the_random_box_has_the_papers_areas_and_ratios() -> None:
    rng = np.random.default_rng(0)
    boxes = np.array([random_box(400, 300, rng) for _ in range(500)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    share, ratio = width * height / (400 * 300), width / height
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= 400
    assert boxes[:, 3].max() <= 300
    assert 0.08 - 1e-9 <= share.min() < 0.15
    assert 0.85 < share.max() <= 1
    assert 3 / 4 - 1e-9 <= ratio.min() < 0.8
    assert 1.25 < ratio.max() <= 4 / 3 + 1e-9


def test_a_long_picture_is_cropped_in_the_middle_if_no_draw_fits() -> None:
    # No ratio of at most 4/3 has 8% of the area of a line that is 1,000 times as long as high.
    left, top, right, bottom = random_box(1000, 1, np.random.default_rng(0))
    assert (right - left, bottom - top) == pytest.approx((4 / 3, 1))
    assert left + right == pytest.approx(1000)


def test_the_middle_is_pillows_resize_and_crop() -> None:
    x, y = np.meshgrid(np.arange(512), np.arange(512))
    picture = Image.fromarray(np.stack([x // 2, y // 2, (x + y) // 4], 2).astype(np.uint8))
    expected = picture.resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240))
    assert np.abs(values(middle_square(picture, 224)) - values(expected)).max() <= 1


def test_half_of_the_crops_are_mirrored() -> None:
    """The left half is red: it is to the right in half of the crops that have both."""
    pixels_HWC = np.zeros((64, 64, 3), dtype=np.uint8)
    pixels_HWC[:, :32, 0] = 255
    rng = np.random.default_rng(0)
    crops = [values(random_square(Image.fromarray(pixels_HWC), 32, rng))[:, :, 0].mean(0) for _ in range(400)]
    differences = np.array([row_W[0] - row_W[-1] for row_W in crops])
    to_the_right, to_the_left = (differences < -100).sum(), (differences > 100).sum()
    assert to_the_right + to_the_left > 200
    assert 0.4 < to_the_right / (to_the_right + to_the_left) < 0.6


Reference = Callable[[NDArray[np.float64], float], NDArray[np.float64]]


@pytest.mark.parametrize("factor", [0.6, 0.9, 1.4])
@pytest.mark.parametrize(
    ("change", "reference"),
    [
        (augmentation.change_brightness, lambda x_HWC, factor: factor * x_HWC),
        (
            augmentation.change_contrast,
            lambda x_HWC, factor: (grey := (x_HWC @ GREY_C).mean()) + factor * (x_HWC - grey),
        ),
        (
            augmentation.change_saturation,
            lambda x_HWC, factor: (grey := (x_HWC @ GREY_C)[..., None]) + factor * (x_HWC - grey),
        ),
    ],
    ids=["brightness", "contrast", "saturation"],
)
def test_colours_change_by_the_formula(change: augmentation.Change, reference: Reference, factor: float) -> None:
    """Within the rounding to whole numbers, of the grey and of the result."""
    picture = make_picture()
    expected = reference(values(picture), factor).clip(0, 255)
    assert np.abs(values(change(picture, factor)) - expected).max() <= 2


@pytest.mark.parametrize("share", [-0.1, 0.04, 0.1])
def test_the_hue_moves_around_the_circle(share: float) -> None:
    """Pixel by pixel as in colorsys, within the 256 steps in which Pillow counts hue and saturation."""
    picture = make_picture(12, 16)
    steps = round(share * 256) / 256
    expected_HWC = np.empty((12, 16, 3))
    for place in np.ndindex(12, 16):
        hue, saturation, value = colorsys.rgb_to_hsv(*(values(picture)[place] / 255))
        expected_HWC[place] = np.array(colorsys.hsv_to_rgb((hue + steps) % 1, saturation, value)) * 255
    difference = np.abs(values(augmentation.shift_hue(picture, share)) - expected_HWC)
    assert difference.max() <= 8
    assert difference.mean() <= 2


@pytest.mark.parametrize("degrees", [-15.0, 4.0, 90.0])
def test_a_rotation_is_scipys(degrees: float) -> None:
    """Counterclockwise around the middle, linear between pixels; away from the border, where SciPy cuts sharply."""
    picture = make_picture(65, 65)
    expected = ndimage.rotate(values(picture), degrees, reshape=False, order=1, mode="constant")
    inner = np.hypot(*np.mgrid[-32:33, -32:33]) < 30
    difference = np.abs(values(augmentation.rotate(picture, degrees)) - expected)[inner]
    assert difference.max() <= 3
    assert difference.mean() <= 1


def test_what_a_rotation_brings_in_is_black() -> None:
    white = Image.fromarray(np.full((64, 64, 3), 255, dtype=np.uint8))
    assert values(augmentation.rotate(white, 15))[0, 0].max() == 0


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_a_blur_is_scipys_gaussian(sigma: float) -> None:
    """Of noise, Pillow's three box filters differ from the Gaussian by less than a twentieth of the noise."""
    noise_HWC = np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8)
    expected = ndimage.gaussian_filter(noise_HWC.astype(np.float64), (sigma, sigma, 0), mode="nearest", truncate=6)
    difference = values(augmentation.blur(Image.fromarray(noise_HWC), sigma)) - expected
    assert np.abs(difference[6:-6, 6:-6]).mean() < 0.05 * noise_HWC.std()
    assert difference.mean() == pytest.approx(0, abs=0.6)


def test_changes_come_as_often_as_they_should() -> None:
    """Of 2,000 pictures: colours in 80 %, angle in 30 %, sharpness in 10 %."""
    picture, rng = make_picture(16, 16), np.random.default_rng(0)
    for change, chance in (
        (augmentation.augment_colours, 0.8),
        (augmentation.rotate_sometimes, 0.3),
        (augmentation.blur_sometimes, 0.1),
    ):
        changed = sum(change(picture, rng) is not picture for _ in range(2000)) / 2000
        assert changed == pytest.approx(chance, abs=0.04)


def test_the_order_of_the_colour_changes_is_random() -> None:
    """Brightness before contrast gives another picture than after it."""
    amounts_seen = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        if rng.random() < augmentation.COLOUR_CHANCE:
            rng.uniform(size=4)
            amounts_seen.add(tuple(rng.permutation(4)))
    assert len(amounts_seen) > 10
    same = [values(augment(make_picture(), 32, np.random.default_rng(seed))) for seed in (3, 3, 4)]
    assert np.array_equal(same[0], same[1])
    assert not np.array_equal(same[0], same[2])


def test_a_sample_depends_on_its_generator_only(tmp_path: Path) -> None:
    """Global generators aren't touched: a resumed run gets the same samples."""
    prepare = Prepare(crop=lambda picture, rng: augment(picture, 32, rng), mixup=0.2)
    make_picture().save(tmp_path / "a.png")
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[index]
    samples = [prepare(str(tmp_path / "a.png"), 3, "a", np.random.default_rng(7)) for _ in range(2)]
    assert torch.equal(samples[0][0], samples[1][0])
    assert samples[0][1:] == samples[1][1:]
    assert 0 <= samples[0][2] <= 1
    assert np.array_equal(np.random.get_state()[1], before[0])  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_colours_are_normalised_with_imagenets_mean_and_deviation() -> None:
    """A pixel that has the mean's colour is 0, white is (1 - mean) / deviation; channels come first."""
    pixels_HWC = np.array([[[124, 116, 104], [255, 255, 255]]], dtype=np.uint8)
    normalised_CHW = normalise(Image.fromarray(pixels_HWC))
    assert normalised_CHW.shape == (3, 1, 2)
    assert normalised_CHW[:, 0, 0].abs().max() < 0.01
    assert normalised_CHW[:, 0, 1].tolist() == pytest.approx([2.2489, 2.4286, 2.6400], abs=1e-4)


@pytest.mark.parametrize("content", [b"", b"GIF89a" + bytes(40), b"\xff\xd8\xff\xe0" + bytes(40)])
def test_a_damaged_picture_is_named(content: bytes) -> None:
    with pytest.raises(TrainerError, match=r"the picture cat\.jpg can't be read") as caught:
        Prepare(crop=lambda picture, _: picture)(io.BytesIO(content), 0, "cat.jpg", np.random.default_rng(0))
    assert "check imagenet" in caught.value.fix
