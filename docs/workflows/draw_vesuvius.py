"""Draws docs/workflows/vesuvius.png: trains on generated scrolls, and predicts a volume of the held-out one.

python -m docs.workflows.draw_vesuvius
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

from benchmarks.learning.bar import learn
from benchmarks.learning.surface import BAR
from trainer.generators.surface import HELD_OUT
from trainer.recipes.surface.networks import make_network
from trainer.recipes.surface.patches import split_by_scroll
from trainer.recipes.surface.scoring import predict
from trainer.recipes.surface.volumes import VolumeStore

# Shape legend: Z Y X axes of a volume.
SHADES = np.array([0, 255, 96], np.uint8)
"""Of background, surface and unlabelled voxels."""
PICTURE = Path(__file__).with_name("vesuvius.png")
SCALE = 6
GAP = 2


def main() -> None:
    """Train, predict, and write the picture: volume, labels and prediction, through the middle of two axes."""
    with tempfile.TemporaryDirectory() as folder:
        learnt = learn(BAR, Path(folder), seed=0)
        sys.stdout.write(f"{learnt}\n")
        data = Path(folder) / "data"
        volume = VolumeStore(data).open(split_by_scroll(data, HELD_OUT)[1][0])
        network = make_network("v2", base_filters=8, depth=2).eval()
        network.load_state_dict(load_file(Path(folder) / "run" / "model.safetensors"))
    raw = torch.from_numpy(volume.image.astype(np.float32) / 255)
    with torch.no_grad():
        predicted_ZYX = predict(network(raw[None, None]))[0].numpy()
    middle = len(predicted_ZYX) // 2
    rows = []
    for axis in (0, 2):
        slices = [np.take(each, middle, axis) for each in (volume.image, volume.labels, predicted_ZYX)]
        panels = [slices[0], SHADES[slices[1]], SHADES[slices[2].astype(int)]]
        rows.append(np.concatenate([np.pad(panel, GAP, constant_values=160) for panel in panels], axis=1))
    picture = Image.fromarray(np.concatenate(rows))
    size = (picture.width * SCALE, picture.height * SCALE)
    picture.resize(size, Image.Resampling.NEAREST).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
