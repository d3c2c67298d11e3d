"""Reading fresnel's folder: whose features, how wide, and what is refused."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.recipes.gaussian.scenes import write_scenes
from trainer.base.errors import BadRequestError
from trainer.base.overrides import apply_overrides
from trainer.recipes.gaussian.data import SceneFolder
from trainer.recipes.gaussian.settings import DataSettings
from trainer.recipes.gaussian.workload import build_workload, recipe

RNG = np.random.default_rng(0)


def open_folder(folder: Path, *, pixels: int = 16, **settings: object) -> SceneFolder:
    return SceneFolder(DataSettings(folder=str(folder), **settings), pixels=pixels)  # type: ignore[arg-type]


def test_scene_has_its_picture_features_and_depth(tmp_path: Path) -> None:
    """Features are stored patch by patch: [37, 37, D]."""
    scene = open_folder(write_scenes(tmp_path, 2), pixels=20).sample(1, RNG)
    left, right = np.random.default_rng(1).uniform(size=(2, 3))
    assert scene.image.shape == (3, 20, 20)
    torch.testing.assert_close(scene.image[:, 10, 2], torch.tensor(left).float(), atol=0.05, rtol=0)
    torch.testing.assert_close(scene.features[:3, 7, 36], torch.tensor(right).float())
    torch.testing.assert_close(scene.features[3, 0], torch.linspace(1, 0, 37))
    assert scene.depth.shape == (1, 256, 256)
    torch.testing.assert_close(scene.depth[0, 9], torch.linspace(1, 0, 256))


@pytest.mark.parametrize(
    ("width", "suffix"),
    [(384, "_dinov2.bin"), (768, "_dinov2_base.bin"), (1024, "_dinov2_large.bin"), (768, "_dinov2.bin")],
)
def test_width_is_that_of_the_file(tmp_path: Path, width: int, suffix: str) -> None:
    """Also where base's features were written under small's name, as fresnel's phase 2 does it."""
    folder = open_folder(write_scenes(tmp_path, 1, width=width, suffix=suffix))
    assert folder.width == width
    assert folder.sample(0, RNG).features.shape == (width, 37, 37)


def test_features_of_two_kinds_need_a_choice(tmp_path: Path) -> None:
    """A run is trained on one."""
    write_scenes(tmp_path, 2)
    write_scenes(tmp_path, 2, width=12, suffix="_dinov2_base.bin")
    with pytest.raises(BadRequestError, match=r"small and base[\s\S]*data.features=base"):
        open_folder(tmp_path)
    assert open_folder(tmp_path, features="base").width == 12
    assert open_folder(tmp_path, features="small").width == 8


@pytest.mark.parametrize("kind", ["base", "large"])
def test_features_that_are_asked_for_and_missing_are_named(tmp_path: Path, kind: str) -> None:
    """Not by a traceback; `preprocess` makes them."""
    write_scenes(tmp_path, 2)
    with pytest.raises(BadRequestError, match=rf"no file .*000_dinov2_{kind}\.bin[\s\S]*preprocess gaussian"):
        open_folder(tmp_path, features=kind)


def test_decoder_is_as_wide_as_the_features(tmp_path: Path) -> None:
    """Phase 2 is a change of the data alone."""
    write_scenes(tmp_path, 5, width=768, suffix="_dinov2_base.bin")
    model = build_workload(apply_overrides(recipe().settings, [f"data.folder={tmp_path}", "data.held_out=0.2"])).model
    assert isinstance(model, torch.nn.Module)
    assert model.get_parameter("mlp.net.0.weight").shape == (512, 768)


def test_held_out_pictures_are_the_same_for_every_seed(tmp_path: Path) -> None:
    """And not trained on."""
    write_scenes(tmp_path, 20)
    settings = [f"data.folder={tmp_path}", "data.pixels=16", "data.held_out=0.25"]
    held_out, trained = [], []
    for seed in (0, 1):
        workload = build_workload(apply_overrides(recipe().settings, [*settings, f"seed={seed}"]))
        data = workload.validation_data
        held_out.append([data.sample(i, RNG).image.mean().item() for i in range(len(data))])
        assert hasattr(workload.train_data, "sample")
        trained.append([workload.train_data.sample(i, RNG).image.mean().item() for i in range(15)])
    assert held_out[0] == held_out[1]
    assert len(held_out[0]) == 5
    assert not set(held_out[0]) & set(trained[0])


def test_only_the_first_pictures_are_used_if_asked(tmp_path: Path) -> None:
    """Validate's 50 of 500."""
    write_scenes(tmp_path, 5)
    assert [path.stem for path in open_folder(tmp_path, max_images=3).pictures] == ["000", "001", "002"]


def remove_pictures(folder: Path) -> None:
    for path in folder.glob("*.jpg"):
        path.unlink()


def write(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / "features" / name).write_bytes(bytes(size))


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "features" / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (remove("001_dinov2.bin"), "001_dinov2.bin is missing"),
        (lambda folder: shutil.rmtree(folder / "features"), "000_dinov2.bin"),
        (write("001_dinov2.bin", 1000), "001_dinov2.bin has 1,000 bytes instead of 43,808"),
        (write("001_dinov2.bin", 4 * 37 * 37 * 9), "001_dinov2.bin has 49,284 bytes instead of 43,808"),
        (write("000_dinov2.bin", 1000), "000_dinov2.bin has no features of 37 x 37 patches"),
        (remove("001_depth.bin"), "001_depth.bin is missing"),
        (remove_pictures, "there are no pictures"),
    ],
)
def test_damaged_data_are_refused_at_once(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    """By the file's name."""
    spoil(write_scenes(tmp_path, 3))
    with pytest.raises(BadRequestError, match=message):
        open_folder(tmp_path)


@pytest.mark.parametrize("name", ["001_dinov2.bin", "001_depth.bin"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_named(tmp_path: Path, name: str, value: float) -> None:
    """One of them makes a whole batch useless."""
    path = write_scenes(tmp_path, 2) / "features" / name
    values = np.fromfile(path, dtype="<f4")
    values[7] = value
    values.tofile(path)
    folder = open_folder(tmp_path)
    folder.sample(0, RNG)
    with pytest.raises(BadRequestError, match=f"{name} has values that are no numbers"):
        folder.sample(1, RNG)


def test_truncated_picture_is_named(tmp_path: Path) -> None:
    """Found when it is read."""
    picture = write_scenes(tmp_path, 1) / "000.jpg"
    picture.write_bytes(picture.read_bytes()[:400])
    with pytest.raises(BadRequestError, match=r"000\.jpg is no picture"):
        open_folder(tmp_path).sample(0, RNG)


@pytest.mark.parametrize("kind", [b"IDAT", b"PLTE"])
def test_png_with_a_damaged_chunk_is_named(tmp_path: Path, kind: bytes) -> None:
    """Its first and last bytes are whole. Pillow raises a SyntaxError and an AssertionError for these."""
    picture = write_scenes(tmp_path, 1) / "000.png"
    (tmp_path / "000.jpg").unlink()
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8))
    if kind == b"IDAT":
        noise.save(picture)
    else:
        noise.quantize(16).save(picture, transparency=3)
    content = picture.read_bytes()
    assert content.count(kind) >= (2 if kind == b"IDAT" else 1)
    picture.write_bytes(damage_last_chunk(content, kind))
    with pytest.raises(BadRequestError, match=r"000\.png is no picture"):
        open_folder(tmp_path).sample(0, RNG)


def damage_last_chunk(content: bytes, kind: bytes) -> bytes:
    """Turn the chunk's type into another one, and keep its checksum right."""
    place = content.rindex(kind)
    length = int.from_bytes(content[place - 4 : place])
    other = (b"\x00DAT" if kind == b"IDAT" else b"pLTE") + content[place + 4 : place + 4 + length]
    return content[:place] + other + zlib.crc32(other).to_bytes(4) + content[place + 8 + length :]


def test_folder_that_is_not_set_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the current one has pictures. The message says what the recipe reads."""
    monkeypatch.chdir(write_scenes(tmp_path, 2))
    with pytest.raises(BadRequestError, match=r"no pictures X\.jpg[\s\S]*set data\.folder"):
        SceneFolder(DataSettings(), pixels=16)


@pytest.mark.parametrize("name", [".", "..", "./features/.."])
def test_current_folder_may_be_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As `check gaussian --data .` takes it."""
    monkeypatch.chdir(write_scenes(tmp_path, 2) / ("features" if name == ".." else ""))
    assert len(SceneFolder(DataSettings(folder=name), pixels=16)) == 2
