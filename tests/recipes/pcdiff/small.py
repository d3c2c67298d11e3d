"""Settings of a small network, 120 points and two steps of DDIM, and a checkpoint as the originals save it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from trainer.recipes.pcdiff.network import PointVoxelNet
from trainer.recipes.pcdiff.settings import ModelSettings

POINTS, IMPLANT_POINTS = 120, 24
MODEL = ModelSettings(width=0.25, voxels=0.25, neighbours=4, radius=0.8)
SETTINGS = {
    "data.points": POINTS,
    "data.implant_points": IMPLANT_POINTS,
    **{f"model.{name}": getattr(MODEL, name) for name in ("width", "voxels", "neighbours", "radius")},
    **{"sampling.steps": 2, "sampling.limit": 4, "sampling.count": 2},
    **{"sampling.validation_steps": 2, "sampling.validation_count": 3},
}


def make_network() -> PointVoxelNet:
    """Make the network of these settings."""
    return PointVoxelNet(MODEL, points=POINTS)


def save_original(path: Path) -> dict[str, Any]:
    """Save what the originals save under DDP, and return it: names with model.module., the index of the last epoch."""
    torch.manual_seed(0)
    model = make_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.6e-3, betas=(0.5, 0.999))
    skull_BS3, implant_BI3 = torch.randn(1, POINTS - IMPLANT_POINTS, 3), torch.randn(1, IMPLANT_POINTS, 3)
    model(skull_BS3, implant_BI3, torch.tensor([5])).square().sum().backward()
    optimizer.step()
    content = {
        "epoch": 1999,
        "model_state": {f"model.module.{name}": weight for name, weight in model.state_dict().items()},
        "optimizer_state": optimizer.state_dict(),
        "loss": 0.1,
    }
    torch.save(content, path)
    return content
