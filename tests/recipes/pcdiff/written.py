"""What a small run has written: its samples, opened and compared with the data."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.recipes.pcdiff.small import IMPLANT_POINTS, POINTS

# Shape legend: N points of a cloud, M of a file.
_CLOUDS = {"partial": "defective_skull", "ground_truth": "implant"}
"""Of each cloud that is given, the folder that its points are from."""


def check_samples(data: Path, folder: Path, *, cases: Collection[str]) -> None:
    """Check the clouds and the picture of each case (`002-bilateral`): the skull's points are those of its file.

    The clouds are in the unit of the files, and what was made is about where the skull is.
    """
    kinds = (*_CLOUDS, "samples")
    names = {f"{case}.png" for case in cases} | {f"{case}-{kind}.ply" for case in cases for kind in kinds}
    assert {path.name for path in folder.iterdir()} == names
    for case in cases:
        skull, _, defect = case.partition("-")
        partial, truth, made = (read_ply(folder / f"{case}-{kind}.ply") for kind in kinds)
        assert [len(partial), len(truth), len(made)] == [POINTS - IMPLANT_POINTS, IMPLANT_POINTS, IMPLANT_POINTS]
        for cloud_N3, where in zip((partial, truth), _CLOUDS.values(), strict=True):
            file_M3 = np.load(data / where / defect / f"{skull}_surf.npy")
            assert np.linalg.norm(cloud_N3[:, None] - file_M3[None], axis=2).min(1).max() < 1e-2
        size = np.ptp(partial, axis=0).max()
        assert np.isfinite(made).all()
        assert np.abs(made - partial.mean(0)).max() < 2 * size
        check_picture(folder / f"{case}.png")


def check_picture(path: Path) -> None:
    """Check a picture of three clouds from three sides."""
    with Image.open(path) as picture:
        assert picture.size == (720, 480)
        colours = np.unique(np.asarray(picture).reshape(-1, 3), axis=0)
        assert len(colours) == 4, "paper, skull, truth and sample"


def read_ply(path: Path) -> NDArray[np.float32]:
    """Read a cloud, (N, 3)."""
    header, _, body = path.read_bytes().partition(b"end_header\n")
    count = int(header.split(b"element vertex ")[1].split()[0])
    points_N3 = np.frombuffer(body, "<f4").reshape(-1, 3)
    assert len(points_N3) == count
    return points_N3
