"""Pictures on their way to the network: decoded, cropped, changed at random, normalised."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image

from trainer.api import Batch
from trainer.base.errors import TrainerError, first_line
from trainer.data.files.pictures import DAMAGED
from trainer.recipes.imagenet.augmentation import augment_colours, blur_sometimes, rotate_sometimes

# Shape legend: C channels, H height, W width.
MEAN_C, DEVIATION_C = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], dtype=np.float32)
_FORMATS = ("JPEG", "PNG")  # a few files of ImageNet that are called .JPEG are PNGs
Crop = Callable[[Image.Image, np.random.Generator], Image.Image]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Makes a sample of a picture's file: the normalised picture (3, H, W), and its class.

    With `mixup`, the Beta distribution's parameter, also the picture's share in a mixture: see `mixing`.
    """

    crop: Crop
    mixup: float = 0.0

    def __call__(self, file: str | BinaryIO, label: int | torch.Tensor, name: str, rng: np.random.Generator) -> Batch:
        """Read one picture.

        Args:
            file: the file's path, or its bytes.
            label: the class's number.
            name: what the file is called in an error.
            rng: all random numbers of the sample come from it.

        Raises:
            TrainerError: the file is damaged, or neither JPEG nor PNG.
        """
        try:
            with Image.open(file, formats=_FORMATS) as picture:
                square = self.crop(picture.convert("RGB"), rng)
        except DAMAGED as err:
            raise TrainerError(
                f"the picture {name} can't be read",
                why=first_line(err),
                fix="copy it again, or leave it out; `python -m trainer check imagenet --data FOLDER` lists cut ones",
            ) from err
        picture_CHW = normalise(square)
        return (picture_CHW, label, float(rng.beta(self.mixup, self.mixup))) if self.mixup else (picture_CHW, label)


def normalise(picture: Image.Image) -> torch.Tensor:
    """Return a picture as (3, H, W), with ImageNet's mean subtracted, divided by its deviation."""
    pixels_HWC = (np.asarray(picture, dtype=np.float32) / 255 - MEAN_C) / DEVIATION_C
    return torch.from_numpy(pixels_HWC).permute(2, 0, 1).contiguous()


def augment(picture: Image.Image, pixels: int, rng: np.random.Generator) -> Image.Image:
    """Cut out a random square, mirror it, and change colours, angle and sharpness."""
    picture = random_square(picture, pixels, rng)
    return blur_sometimes(rotate_sometimes(augment_colours(picture, rng), rng), rng)


def random_square(picture: Image.Image, pixels: int, rng: np.random.Generator) -> Image.Image:
    """Cut out a rectangle (Szegedy et al. 2015, arXiv:1409.4842), resize it, and mirror it with probability 1/2."""
    square = picture.resize((pixels, pixels), Image.Resampling.BILINEAR, random_box(*picture.size, rng))
    return square.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else square


def random_box(width: int, height: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Draw left, top, right, bottom: 8% to 100% of the area, with a ratio of 3/4 to 4/3.

    If ten draws don't fit, it is the largest box in the middle with an admissible ratio, as in torchvision.
    """
    for _ in range(10):
        area, ratio = width * height * rng.uniform(0.08, 1), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = float(np.sqrt(area * ratio)), float(np.sqrt(area / ratio))
        if w <= width and h <= height:
            left, top = rng.uniform(0, width - w), rng.uniform(0, height - h)
            return left, top, left + w, top + h
    w, h = min(width, height * 4 / 3), min(height, width * 4 / 3)
    return (width - w) / 2, (height - h) / 2, (width + w) / 2, (height + h) / 2


def middle_square(picture: Image.Image, pixels: int) -> Image.Image:
    """Resize the shorter side to 256/224 of the square's and cut out the middle, both in one step."""
    width, height, side = picture.width, picture.height, min(picture.size) * pixels / round(pixels * 256 / 224)
    box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
    return picture.resize((pixels, pixels), Image.Resampling.BILINEAR, box)
