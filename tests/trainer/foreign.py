"""A recipe outside of the package: a file with a module beside it, and an installed package with an entry point."""

from pathlib import Path

RECIPE = '''"""A line, fitted by a line."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from beside_recipe import INPUTS
from trainer.api import Recipe, Settings, Workload, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The network's size."""

    width: int = setting(4, "neurons of the hidden layer", minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSettings(Settings):
    """What every recipe has."""

    model: ModelSettings = field(default_factory=ModelSettings)


class Points:
    def __len__(self):
        return 8

    def sample(self, index, rng):
        x = torch.full((INPUTS,), index / 8)
        return x, x + float(rng.normal())


def recipe():
    return Recipe(settings=LineSettings(epochs=2, batch_size=4, curves=False, onnx=False), build=build)


def wide():
    """A line, fitted by a wide line."""
    return Recipe(settings=LineSettings(model=ModelSettings(width=64)), build=build)


def build(settings):
    return Workload(
        model=nn.Sequential(nn.Linear(INPUTS, settings.model.width), nn.Linear(settings.model.width, INPUTS)),
        train_data=Points(),
        validation_data=Points(),
        loss=lambda model, batch: functional.mse_loss(model(batch[0]), batch[1]),
        metrics=lambda model, batch: {"loss": (model(batch[0]) - batch[1]).square().mean(1)},
    )
'''


def write_recipe(folder: Path, name: str = "line.py") -> Path:
    """Write the recipe's file and the module beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "beside_recipe.py").write_text("INPUTS = 3\n")
    (folder / name).write_text(RECIPE)
    return folder / name


def install_package(site: Path, package: str, entry_points: dict[str, str]) -> None:
    """Write a package's metadata as pip does."""
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
    (info / "entry_points.txt").write_text(f"[kedge.recipes]\n{lines}")
