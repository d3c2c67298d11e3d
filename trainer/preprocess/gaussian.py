"""Features and depths of pictures for the recipe `gaussian`, by models that the user gives."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from trainer.base.errors import BadRequestError, first_line
from trainer.base.files import write_atomically
from trainer.checkpoints.remap import find_weights, read_content
from trainer.preprocess.dinov2 import PATCH, build_dinov2
from trainer.recipes.gaussian.data import DEPTH_SIDE, DEPTH_SUFFIX, SUFFIXES, list_pictures, open_picture
from trainer.recipes.gaussian.decoder import GRID

# Shape legend: H height, W width, G patches along a side, D features.
SIDE = GRID * PATCH
KINDS = {384: "small", 768: "base", 1024: "large"}
# ImageNet's, with which DINOv2 and Depth Anything were trained.
_MEAN_3, _DEVIATION_3 = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], dtype=np.float32)
_EVERY = 50
Array = NDArray[np.float32]


def preprocess(
    folder: Path, *, weights: Path, depth_model: Path | None, device: str, say: Callable[[str], None]
) -> None:
    """Write features/X_dinov2.bin (_base, _large by the weights' width), and with a depth model X_depth.bin.

    Files that are there are kept, if they have the right size: after an interruption the same command goes on.

    Args:
        folder: has the pictures.
        weights: an official checkpoint of DINOv2; no code in it is run.
        depth_model: an ONNX file that maps (1, 3, 518, 518) to a depth map, as fresnel's depth_anything_v2_small.onnx.
        device: for DINOv2, as torch names it.
        say: gets a line for the user.

    Raises:
        BadRequestError: a picture or a model can't be read, or doesn't fit.
    """
    pictures = list_pictures(folder)
    model = build_dinov2(find_weights(read_content(weights)).weights, str(weights)).to(_find_device(device))
    width = model.pos_embed.shape[2]
    if width not in KINDS:
        raise BadRequestError(
            f"{weights} has features of width {width}",
            why="the data have file names for widths of 384, 768 and 1024: DINOv2 small, base and large",
            fix="give the weights of one of these",
        )
    (folder / "features").mkdir(exist_ok=True)
    depth = _open_depth_model(depth_model) if depth_model else None
    count = _Count(say, len(pictures))
    for picture in pictures:
        place = folder / "features" / picture.stem
        _write(
            place,
            SUFFIXES[KINDS[width]],
            GRID * GRID * width,
            lambda image: compute_features(model, image),
            picture,
            count,
        )
        if depth:
            _write(place, DEPTH_SUFFIX, DEPTH_SIDE**2, depth, picture, count)
        count.done()
    count.report(width, _list_without_depth(pictures))


def normalise(picture: Path) -> Array:
    """Read a picture as both models want it: (1, 3, 518, 518), resized, with ImageNet's mean and deviation."""
    image = open_picture(picture).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    pixels_HW3 = (np.asarray(image, dtype=np.float32) / 255 - _MEAN_3) / _DEVIATION_3
    return np.ascontiguousarray(pixels_HW3.transpose(2, 0, 1)[None])


@torch.no_grad()
def compute_features(model: torch.nn.Module, image_13HW: Array) -> Array:
    """Compute the patch features of a picture, (G, G, D)."""
    device = next(model.parameters()).device
    features_GGD: Array = model(torch.from_numpy(image_13HW).to(device))[0].cpu().numpy()
    return features_GGD


def scale_depth(depth_HW: Array) -> Array:
    """Shift and scale a depth map to [0, 1], and resize it to 256 x 256; a flat one is 0."""
    low, high = float(depth_HW.min()), float(depth_HW.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("a depth that isn't a number")
    unit_HW = (depth_HW - low) / (high - low) if high - low > 1e-6 else np.zeros_like(depth_HW)
    resized = Image.fromarray(unit_HW.astype(np.float32)).resize((DEPTH_SIDE, DEPTH_SIDE), Image.Resampling.BILINEAR)
    scaled: Array = np.asarray(resized).clip(0, 1)
    return scaled


class _Count:
    """Tells how far it is, and what was kept."""

    def __init__(self, say: Callable[[str], None], pictures: int) -> None:
        self._say = say
        self._pictures, self._done, self.written, self.kept = pictures, 0, 0, 0

    def done(self) -> None:
        self._done += 1
        if self._done % _EVERY == 0:
            self._say(f"{self._done:,} of {self._pictures:,} pictures")

    def report(self, width: int, without_depth: list[str]) -> None:
        self._say(f"{self._pictures:,} pictures, features of width {width}: {self.written:,} files were written")
        if self.kept:
            self._say(f"{self.kept:,} files were there already; delete those that came from other weights")
        if without_depth:
            self._say(
                f"{len(without_depth):,} depths are missing, such as features/{without_depth[0]}{DEPTH_SUFFIX}: give a "
                "depth model with --depth-model FILE.onnx, or write them yourself: 256 x 256 values, float32 without a "
                "header, from 0 (far) to 1 (near)"
            )


def _write(
    place: Path, suffix: str, values: int, compute: Callable[[Array], Array], picture: Path, count: _Count
) -> None:
    path = place.with_name(place.name + suffix)
    if path.is_file() and path.stat().st_size == 4 * values:
        count.kept += 1
        return
    content = compute(normalise(picture)).astype("<f4").tobytes()
    write_atomically(path, lambda stream: stream.write(content), durable=False)
    count.written += 1


def _list_without_depth(pictures: list[Path]) -> list[str]:
    places = ((picture.parent / "features" / f"{picture.stem}{DEPTH_SUFFIX}", picture.stem) for picture in pictures)
    return [stem for path, stem in places if not path.is_file()]


def _find_device(name: str) -> torch.device:
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as err:
        raise BadRequestError(
            f"there is no device {name}", why=first_line(err), fix="leave --device out, or give cpu"
        ) from err
    return device


def _open_depth_model(path: Path) -> Callable[[Array], Array]:
    """Return a function from a normalised picture to its depth, (256, 256)."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime  # noqa: PLC0415 - only this option needs it
    except ImportError as err:
        raise BadRequestError("onnxruntime is missing", why=first_line(err), fix="pip install onnxruntime") from err
    try:
        session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as err:
        raise BadRequestError(
            f"{path} is no ONNX model that runs here", why=first_line(err), fix="give a depth model's .onnx"
        ) from err

    def estimate(image_13HW: Array) -> Array:
        try:
            depth = np.asarray(session.run(None, {session.get_inputs()[0].name: image_13HW})[0], dtype=np.float32)
            return scale_depth(depth.reshape(depth.shape[-2:]))
        except Exception as err:
            raise BadRequestError(
                f"{path} gives no depth of a picture",
                why=first_line(err),
                fix=f"give a model that maps (1, 3, {SIDE}, {SIDE}) to one map of depth",
            ) from err

    return estimate
