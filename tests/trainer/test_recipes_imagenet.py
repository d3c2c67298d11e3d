import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.trainer import harness
from trainer.base.signals import StopFlag
from trainer.cli import main
from trainer.recipes.imagenet import middle_square, random_box, resnet

SMALL = (
    "model.depth=18",
    "data.pixels=32",
    "batch_size=8",
    "workers=0",
    "epochs=5",
    "schedule.warmup_epochs=0",
    "optimizer.learning_rate=1.0",
    "onnx=false",
    "curves=false",
)


def test_the_50_layers_have_torchvisions_size_and_names() -> None:
    with torch.device("meta"):
        model = resnet(50, 1000)
    names = set(model.state_dict())
    assert sum(weight.numel() for weight in model.parameters()) == 25_557_032
    assert len(names) == 320
    wanted = {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer1.0.downsample.0.weight"}
    assert wanted | {"layer1.0.downsample.1.bias", "layer4.2.bn3.weight", "fc.weight", "fc.bias"} <= names
    assert not any(name.startswith("layer1.1.downsample") for name in names)
    # Version 1.5: the 3x3 convolution has the stride.
    assert model.get_submodule("layer2.0.conv1").stride == (1, 1)
    assert model.get_submodule("layer2.0.conv2").stride == (2, 2)


def test_the_18_layers_have_torchvisions_size_and_return_scores() -> None:
    model = resnet(18, 1000).eval()
    assert sum(weight.numel() for weight in model.parameters()) == 11_689_512
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 1000)


def test_the_random_box_has_the_papers_areas_and_ratios() -> None:
    rng = np.random.default_rng(0)
    boxes = np.array([random_box(400, 300, rng) for _ in range(500)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    share, ratio = width * height / (400 * 300), width / height
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= 400
    assert boxes[:, 3].max() <= 300
    assert 0.08 - 1e-9 <= share.min() < 0.15
    assert 0.85 < share.max() <= 1
    assert 3 / 4 - 1e-9 <= ratio.min() < 0.8
    assert 1.25 < ratio.max() <= 4 / 3 + 1e-9


def test_a_long_picture_is_cropped_in_the_middle_if_no_draw_fits() -> None:
    # No ratio of at most 4/3 has 8% of the area of a line that is 1,000 times as long as high.
    left, top, right, bottom = random_box(1000, 1, np.random.default_rng(0))
    assert (right - left, bottom - top) == pytest.approx((4 / 3, 1))
    assert left + right == pytest.approx(1000)


def test_the_middle_is_pillows_resize_and_crop() -> None:
    x, y = np.meshgrid(np.arange(512), np.arange(512))
    picture = Image.fromarray(np.stack([x // 2, y // 2, (x + y) // 4], 2).astype(np.uint8))
    expected = picture.resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240))
    difference = np.abs(np.asarray(middle_square(picture, 224), float) - np.asarray(expected, float))
    assert difference.max() <= 1


def test_learns_to_tell_bars_from_squares(tmp_path: Path) -> None:
    draw_shapes(tmp_path / "data")
    output = tmp_path / "output"
    assert train(output, f"data.folder={tmp_path / 'data'}") == 0
    rows = harness.read_rows(output)
    last = [row for row in rows if "val_top1" in row][-1]
    assert last["val_top5"] == 1
    assert max(row.get("val_top1", 0) for row in rows) > 0.75  # a constant predictor has 0.5


def test_a_folder_without_pictures_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "output", f"data.folder={tmp_path}") == 2
    assert re.search(r"no pictures .*train.*data\.folder", capsys.readouterr().err)


def train(output: Path, *settings: str) -> int:
    argv = ["imagenet", *harness.settings_args([*SMALL, *settings]), "--output-dir", str(output)]
    return main(argv, environ={}, stop=StopFlag())


def draw_shapes(folder: Path) -> None:
    """Write 48 pictures with a green bar or a red square for training, and the same for validation."""
    rng = np.random.default_rng(0)
    for part in ("train", "val"):
        for name in ("bar", "square"):
            (folder / part / name).mkdir(parents=True)
            for number in range(24 if part == "train" else 12):
                pixels_HWC = rng.integers(0, 60, (40, 48, 3), dtype=np.uint8)
                if name == "bar":
                    pixels_HWC[:, 14:34, 1] = 230
                else:
                    pixels_HWC[10:30, 14:34, 0] = 230
                Image.fromarray(pixels_HWC).save(folder / part / name / f"{number}.JPEG")
