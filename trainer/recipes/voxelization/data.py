"""Reads pairs of a point cloud and a volume: `NNN_<defect>_pc.npz[points]` and `NNN_<defect>_vox.npz[psr]`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.api import BadRequestError, Sample
from trainer.checks import voxelization as layout
from trainer.checks._npy import NpyHeader
from trainer.checks._npz import UnreadableArrayError, open_npz, read_exactly
from trainer.checks.voxelization import Pair
from trainer.data.files.kept import open_kept

# Shape legend: N points, G nodes a side, K bytes with a bit for each of G nodes.
OUTSIDE = 0.5
"""The function at nodes outside; inside it is the opposite."""
_MOST_POINTS = 1_000_000


def list_pairs(folder: Path, held_out: float) -> tuple[list[Pair], list[Pair]]:
    """List the pairs for training and for validation: as train.csv and eval.csv say, else whole skulls are held out.

    Raises:
        BadRequestError: a pair is incomplete or on both sides, one side would be empty, or one of the lists is missing.
    """
    found, _ = layout.find_pairs(folder)
    pairs = {name: pair for name, pair in found.items() if pair.points.is_file() and pair.volume.is_file()}
    if not pairs:
        raise _bad_data(folder, "there is no NNN_<defect>_pc.npz with its _vox.npz")
    if len(pairs) < len(found):
        raise _bad_data(folder, f"of {len(found) - len(pairs)} of {len(found)} pairs one file is missing")
    train, evaluation = _split_by_lists(folder, pairs) or layout.hold_out(pairs, held_out)
    if not train or not evaluation:
        raise _bad_data(folder, f"{len(train)} pairs are for training, and {len(evaluation)} for validation")
    return train, evaluation


def read_grid_size(path: Path) -> int:
    """Return the nodes a side of a volume.

    Raises:
        BadRequestError: it can't be read.
    """
    try:
        return layout.read_grid_header(path).shape[0]
    except UnreadableArrayError as err:
        raise _bad_data(path, str(err)) from err


class SkullPairs:
    """Samples {"points": (N, 3), "bone": (G, G, G)}: a cloud in the unit cube, and booleans: which nodes are inside.

    A byte a node, because a batch of four volumes of 512 nodes a side has half a gibibyte even so, and each loader
    process has several of them.

    Args:
        pairs: what to read.
        grid: nodes a side; of a finer volume every so many nodes are kept.
        points: how many of a cloud's points, drawn anew each time; 0: all.
        noise: deviation of the points' noise.
        cache: where decoded volumes are kept, a bit for each node; None: they are decoded each time.
    """

    def __init__(
        self, pairs: Sequence[Pair], *, grid: int, points: int = 0, noise: float = 0.0, cache: Path | None = None
    ) -> None:
        self._pairs = list(pairs)
        self._grid = grid
        self._points = points
        self._noise = noise
        self._cache = cache

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self._pairs)

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Read one pair; the drawn points and their noise come from `rng`."""
        points_N3 = read_points(self._pairs[index].points)
        if 0 < self._points < len(points_N3):
            points_N3 = points_N3[rng.choice(len(points_N3), self._points, replace=False)]
        if self._noise:
            points_N3 = points_N3 + self._noise * rng.standard_normal(points_N3.shape, dtype=np.float32)
        return {"points": torch.from_numpy(points_N3), "bone": torch.from_numpy(self._open(self._pairs[index].volume))}

    def _open(self, path: Path) -> NDArray[np.bool_]:
        grid = self._grid
        if self._cache is None:
            return read_volume(path, grid)
        folder = self._cache / f"grid-{grid}"
        bits_GGK = open_kept(path, folder, lambda source: np.packbits(read_volume(source, grid), axis=-1))
        if bits_GGK.shape != (grid, grid, -(-grid // 8)):
            raise _bad_data(folder, f"{path.name} is kept there with {bits_GGK.shape} bytes; delete the folder")
        return np.unpackbits(bits_GGK, axis=-1, count=grid).view(np.bool_)


def read_points(path: Path) -> NDArray[np.float32]:
    """Read a cloud, (N, 3) in [0, 1].

    Raises:
        BadRequestError: it can't be read, or has points outside of the cube: they have not been divided by 512.
    """
    try:
        with open_npz(path, "points") as (header, stream):
            _require_cloud(header)
            flat = np.frombuffer(read_exactly(stream, header.file_bytes - header.begin), header.dtype)
    except (UnreadableArrayError, ValueError) as err:
        raise _bad_data(path, str(err)) from err
    rows = flat.reshape(header.shape[::-1]).T if header.is_fortran else flat.reshape(header.shape)
    points_N3 = np.array(rows, dtype=np.float32, order="C")
    if not (points_N3.min() >= 0 and points_N3.max() <= 1):  # NaN fails as well
        raise _bad_data(path, "it has points outside of the cube from 0 to 1: divide voxels by 512")
    return points_N3


def read_volume(path: Path, grid: int) -> NDArray[np.bool_]:
    """Read where every so many nodes of a volume are inside, (G, G, G), plane by plane: all may have half a gigabyte.

    Raises:
        BadRequestError: it can't be read, its nodes a side are no multiple of `grid`, or a value isn't -0.5 or +0.5.
    """
    size = read_grid_size(path)
    if size % grid:
        raise _bad_data(path, f"its {size} nodes a side are no multiple of poisson.grid={grid}")
    step = size // grid
    bone_GGG = np.empty((grid,) * 3, dtype=np.bool_)
    try:
        with open_npz(path, "psr") as (header, stream):
            for number in range(size):
                plane = np.frombuffer(read_exactly(stream, 4 * size * size), "<f4").reshape(size, size)
                if number % step == 0:
                    bone_GGG[number // step] = _find_bone(plane[::step, ::step])
    except (UnreadableArrayError, ValueError) as err:
        raise _bad_data(path, str(err)) from err
    return np.ascontiguousarray(bone_GGG.T) if header.is_fortran else bone_GGG


def _find_bone(plane_GG: NDArray[np.float32]) -> NDArray[np.bool_]:
    if not (np.abs(plane_GG) == OUTSIDE).all():
        raise ValueError(f"a volume is {-OUTSIDE} inside and {OUTSIDE} outside, and this one has other values")
    return np.asarray(plane_GG < 0)


def _require_cloud(header: NpyHeader) -> None:
    rows, columns = header.shape if len(header.shape) == 2 else (0, 0)
    if header.kind != "f" or columns != 3 or not 0 < rows <= _MOST_POINTS:
        raise UnreadableArrayError("mis-shaped", f"points of {header.dtype} {header.shape}, not floats (30720, 3)")


def _split_by_lists(folder: Path, pairs: dict[str, Pair]) -> tuple[list[Pair], list[Pair]] | None:
    """Return the pairs that the lists name; None if there are no lists."""
    paths = folder / layout.TRAIN_LIST, folder / layout.EVALUATION_LIST
    train, evaluation = map(_read_list, paths)
    for _, name, what in layout.compare_lists(train, evaluation):
        raise _bad_data(folder / name, what)
    if train is None or evaluation is None:
        return None
    return [_look_up(name, pairs, paths[0]) for name in train], [_look_up(name, pairs, paths[1]) for name in evaluation]


def _read_list(path: Path) -> list[str] | None:
    if not path.is_file():
        return None
    try:
        return layout.read_list(path)
    except (OSError, ValueError) as err:
        raise _bad_data(path, str(err)) from err


def _look_up(name: str, pairs: dict[str, Pair], path: Path) -> Pair:
    if name not in pairs:
        raise _bad_data(path, f"it lists {name[:80]}, which is not there")
    return pairs[name]


def _bad_data(path: Path, why: str) -> BadRequestError:
    return BadRequestError(
        f"{path} can't be used",
        why=why,
        fix="list all problems with: python -m trainer check voxelization --data FOLDER",
    )
