"""Draws skulls with their implants: from the front, from the side and from above."""

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.recipes.pcdiff.clouds import HALF_WIDTH

# Shape legend: S points of the skull, I of the implant, H height and W width of the picture.
_SIDE = 240
_VIEWS = ((0, 2), (1, 2), (0, 1))
_GREY, _GREEN, _RED = (0.75, 0.75, 0.75), (0.1, 0.6, 0.2), (0.85, 0.15, 0.15)
Picture = NDArray[np.float64]


def draw_case(skull_S3: torch.Tensor, implant_I3: torch.Tensor, sample_I3: torch.Tensor) -> Picture:
    """Draw a case as two rows of three views: the skull (grey) with the true implant (green), and the sample (red)."""
    rows = [[_draw(skull_S3, points_I3, colour, axes) for axes in _VIEWS]
            for points_I3, colour in ((implant_I3, _GREEN), (sample_I3, _RED))]  # fmt: skip
    return np.concatenate([np.concatenate(row, 1) for row in rows])


def _draw(
    skull_S3: torch.Tensor, implant_I3: torch.Tensor, colour: tuple[float, float, float], axes: tuple[int, int]
) -> Picture:
    picture_HW3 = np.ones((_SIDE, _SIDE, 3))
    for points_N3, shade in ((skull_S3, _GREY), (implant_I3, colour)):
        place_N2 = (points_N3[:, list(axes)].cpu().numpy() / (1.15 * HALF_WIDTH) + 1) / 2 * (_SIDE - 2)
        across_N, up_N = np.clip(np.nan_to_num(place_N2), 0, _SIDE - 2).astype(int).T
        for right, down in ((0, 0), (0, 1), (1, 0), (1, 1)):
            picture_HW3[_SIDE - 2 - up_N + down, across_N + right] = shade
    return picture_HW3
