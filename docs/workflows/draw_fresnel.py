"""Draws docs/workflows/fresnel.png: held-out scenes of generated data, and what a trained decoder renders.

    python -m trainer generate gaussian DATA --count 40 --seed 2
    python -m trainer gaussian --set data.folder=DATA ... (the settings of benchmarks/learning/gaussian.py)
    python -m docs.workflows.draw_fresnel DATA best-00000068.safetensors

Gaussians have no resolution: a decoder that was trained with 32 pixels is drawn with 160.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from trainer.api import split
from trainer.checkpoints.loading import load
from trainer.group.distributed import ALONE
from trainer.recipes.gaussian.data import SceneFolder
from trainer.recipes.gaussian.decoder import GaussianDecoder
from trainer.recipes.gaussian.render import render
from trainer.recipes.gaussian.settings import DataSettings
from trainer.recipes.gaussian.workload import SPLIT_SEED

PIXELS, SHOWN = 160, 5


def main(data: str, weights: str) -> None:
    """Draw targets in the first row, and rendered pictures below."""
    scenes = split(SceneFolder(DataSettings(folder=data), pixels=PIXELS), 0.2, seed=SPLIT_SEED)[1]
    shown = [scenes.sample(i, np.random.default_rng(0)) for i in range(SHOWN)]
    state = load(Path(weights), ALONE)["model"]
    model = GaussianDecoder(state["mlp.net.0.weight"].shape[1], per_patch=1, dropout=0).eval()
    model.load_state_dict(state)
    rows = []
    with torch.no_grad():
        for image, features, depth in shown:
            rendered, _ = render(model(features[None], depth[None]), PIXELS)
            rows.append(torch.cat([image, rendered[0].clamp(0, 1)], 1))
    pixels = (torch.cat(rows, 2).permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    Image.fromarray(pixels).save(Path(__file__).with_name("fresnel.png"), optimize=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
