"""Random changes of a picture: colours, angle, sharpness. Each draws from the sample's generator only.

The strengths are those of the "strong" set of github.com/abhi1021/resnet50-imagenet-1k; the colours are changed as in
SimCLR (Chen et al. 2020, arXiv:2002.05709, appendix A), in random order.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter

JITTER, HUE = 0.4, 0.1
"""Brightness, contrast and saturation are multiplied by 0.6 to 1.4; the hue moves by a tenth of the circle at most."""
DEGREES = 15.0
SIGMAS = 0.1, 2.0
COLOUR_CHANCE, ROTATION_CHANCE, BLUR_CHANCE = 0.8, 0.3, 0.1
Change = Callable[[Image.Image, float], Image.Image]


def augment_colours(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Change brightness, contrast, saturation and hue in random order, with probability 0.8."""
    if rng.random() >= COLOUR_CHANCE:
        return picture
    amounts = [*rng.uniform(1 - JITTER, 1 + JITTER, 3), rng.uniform(-HUE, HUE)]
    for number in rng.permutation(len(_COLOUR_CHANGES)):
        picture = _COLOUR_CHANGES[number](picture, float(amounts[number]))
    return picture


def rotate_sometimes(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Rotate by up to 15 degrees either way, with probability 0.3."""
    return rotate(picture, rng.uniform(-DEGREES, DEGREES)) if rng.random() < ROTATION_CHANCE else picture


def blur_sometimes(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Blur with probability 0.1."""
    return blur(picture, rng.uniform(*SIGMAS)) if rng.random() < BLUR_CHANCE else picture


def change_brightness(picture: Image.Image, factor: float) -> Image.Image:
    """Multiply all values by a factor."""
    return ImageEnhance.Brightness(picture).enhance(factor)


def change_contrast(picture: Image.Image, factor: float) -> Image.Image:
    """Multiply the distance of all values to the picture's mean grey by a factor."""
    return ImageEnhance.Contrast(picture).enhance(factor)


def change_saturation(picture: Image.Image, factor: float) -> Image.Image:
    """Multiply each pixel's distance to its own grey by a factor."""
    return ImageEnhance.Color(picture).enhance(factor)


def shift_hue(picture: Image.Image, share: float) -> Image.Image:
    """Move the hue by a share of the colour circle."""
    hue, saturation, value = picture.convert("HSV").split()
    steps = round(share * 256) % 256
    hue = hue.point([(step + steps) % 256 for step in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def rotate(picture: Image.Image, degrees: float) -> Image.Image:
    """Rotate counterclockwise around the middle, interpolated linearly; what comes in at the corners is black."""
    return picture.rotate(degrees, Image.Resampling.BILINEAR)


def blur(picture: Image.Image, sigma: float) -> Image.Image:
    """Blur with a Gaussian; `sigma` in pixels."""
    return picture.filter(ImageFilter.GaussianBlur(sigma))


_COLOUR_CHANGES: tuple[Change, ...] = (change_brightness, change_contrast, change_saturation, shift_hue)
