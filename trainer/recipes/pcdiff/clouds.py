"""Reads skulls and implants as clouds of points, normalised, with the noise that is to be predicted."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.api import BadRequestError, Sample
from trainer.checks._skulls import DEFECTS, Case, list_cases, split_skulls
from trainer.checks.pcdiff import read_cloud_header
from trainer.recipes.pcdiff.diffusion import Diffusion
from trainer.recipes.pcdiff.settings import DataSettings

# Shape legend: M points of a file, N points of a cloud, S of the skull, I of the implant.
HALF_WIDTH = 3.0
"""Normalised clouds reach from -3 to 3 along their longest side (`shape_bbox` in the original's data sets)."""
_AXES = ((1, 2), (2, 0), (0, 1))
_GOLDEN = (5**0.5 - 1) / 2
"""Its multiples modulo 1 are spread evenly, however many there are."""
Points = NDArray[np.float64]


def read_cases(folder: Path) -> tuple[list[Case], list[Case]]:
    """Return the cases for training and for validation.

    Raises:
        BadRequestError: the folder has no skulls, or its lists have rows that can't be used.
    """
    split = split_skulls(folder)
    if split.wrong or not split.train or not split.validation:
        wrong = [f"{name}: {what}" for name, what in split.wrong[:3]]
        why = "; ".join(wrong) or f"{len(split.train)} skulls are for training, {len(split.validation)} for validation"
        raise BadRequestError(
            f"{folder} can't be trained on" if str(folder) != "." else "no data is given",
            why=why,
            fix="set data.folder to a folder that `python -m trainer check pcdiff --data FOLDER` accepts",
        )
    return list_cases(split.train), list_cases(split.validation)


def spread_cases(cases: list[Case], count: int) -> list[int]:
    """Choose cases of skulls that are far from each other in the list, each with another defect; return their indices.

    Args:
        cases: as `list_cases` lists them.
        count: how many; all of them, if there aren't as many.
    """
    skulls, count = len(cases) // len(DEFECTS), min(count, len(cases))
    return [number * skulls // count * len(DEFECTS) + number % len(DEFECTS) for number in range(count)]


class SkullClouds:
    """Cases of a folder. Points, rotation, step and noise of a sample are drawn anew in each epoch.

    A sample has `skull` (S, 3), `implant`, `noisy` and `noise` (I, 3), `step` (), the case's `index` (), and `shift`
    (3,) and `scale` (), with which a point p is shift + scale * p in the file's unit.
    """

    def __init__(
        self, folder: Path, cases: list[Case], settings: DataSettings, process: Diffusion, *, is_training: bool
    ) -> None:
        self.cases = cases
        self._folder, self._settings, self._process = folder, settings, process
        self._is_training = is_training

    def __len__(self) -> int:
        """Count the cases."""
        return len(self.cases)

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Read and normalise one case, and add noise to its implant."""
        case, settings = self.cases[index], self._settings
        skull_S3 = _draw(self._folder / case.defective_file, settings.points - settings.implant_points, rng)
        implant_I3 = _draw(self._folder / case.implant_file, settings.implant_points, rng)
        cloud_N3 = np.concatenate([skull_S3, implant_I3])
        if self._is_training and settings.rotation_degrees:
            cloud_N3 = rotate(cloud_N3, rng.uniform(-1, 1, 3) * np.radians(settings.rotation_degrees))
        boxed_N3 = cloud_N3 if self._is_training and settings.normalize == "both" else cloud_N3[: len(skull_S3)]
        shift_3, scale = find_box(boxed_N3)
        cloud = torch.from_numpy(((cloud_N3 - shift_3) / scale).astype(np.float32))
        step = torch.tensor(self._choose_step(index, rng))
        noise_I3 = torch.from_numpy(rng.standard_normal(implant_I3.shape, dtype=np.float32))
        skull, implant = cloud[: len(skull_S3)], cloud[len(skull_S3) :]
        return {
            "skull": skull,
            "implant": implant,
            "noisy": self._process.add_noise(implant, step, noise_I3),
            "noise": noise_I3,
            "step": step,
            "index": torch.tensor(index),
            "shift": torch.from_numpy(shift_3.astype(np.float32)),
            "scale": torch.tensor(scale, dtype=torch.float32),
        }

    def _choose_step(self, index: int, rng: np.random.Generator) -> int:
        """Draw a step in training; in validation spread them evenly, so that the loss depends less on chance."""
        if self._is_training:
            return int(rng.integers(self._process.steps))
        return int((index + 0.5) * _GOLDEN % 1 * self._process.steps)


def find_box(cloud_N3: Points) -> tuple[Points, float]:
    """Return the middle of a cloud's bounding box, (3,), and a sixth of its longest side.

    Raises:
        BadRequestError: all points are the same.
    """
    low_3, high_3 = cloud_N3.min(0), cloud_N3.max(0)
    scale = float((high_3 - low_3).max()) / 2 / HALF_WIDTH
    if not scale:
        raise BadRequestError(
            "a cloud has no extent", why="all of its points are the same", fix="remove it from the lists"
        )
    return (low_3 + high_3) / 2, scale


def rotate(cloud_N3: Points, angles_3: Points) -> Points:
    """Rotate about the axes through the points' mean: about z, then y, then x, in radians."""
    matrix_33 = np.eye(3)
    for angle, (first, second) in zip(angles_3, _AXES, strict=True):
        turn_33 = np.eye(3)
        turn_33[[first, second], [first, second]] = np.cos(angle)
        turn_33[first, second], turn_33[second, first] = -np.sin(angle), np.sin(angle)
        matrix_33 = matrix_33 @ turn_33
    middle_3 = cloud_N3.mean(0)
    return np.asarray((cloud_N3 - middle_3) @ matrix_33.T + middle_3)


def _draw(path: Path, count: int, rng: np.random.Generator) -> Points:
    """Draw points of a file, with repetition, as the original does; the file is mapped, not read as a whole."""
    try:
        header = read_cloud_header(path)
        order: Literal["F", "C"] = "F" if header.is_fortran else "C"
        points_M3 = np.memmap(path, header.dtype, mode="r", offset=header.begin, shape=header.shape, order=order)
    except (OSError, ValueError) as err:
        raise _refuse(path, str(err)) from err
    drawn_N3 = np.asarray(points_M3[np.sort(rng.integers(len(points_M3), size=count))], dtype=np.float64)
    if not np.isfinite(drawn_N3).all():
        raise _refuse(path, "some of its points aren't finite")
    return drawn_N3


def _refuse(path: Path, why: str) -> BadRequestError:
    return BadRequestError(
        f"{path} can't be used",
        why=why,
        fix="see what else is wrong: python -m trainer check pcdiff --data FOLDER",
    )
