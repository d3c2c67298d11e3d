"""What a recipe makes to look at: its files, their names, and which sets are kept."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch
from torch import nn

from tests.trainer import harness, line
from trainer.base.config import SampleSettings
from trainer.base.errors import BadRequestError, TrainerError
from trainer.base.recipe import Moment
from trainer.report.samples import SampleFolder, encode_sample

# Shape legend: D depth, H height, W width, N points.


def make_samples(model: nn.Module, moment: Moment) -> Mapping[str, Any]:
    """One of each kind; the picture's first value tells the model's mode, the second draws."""
    assert not model.training
    assert not torch.is_grad_enabled()
    return {
        "picture.png": torch.rand(4, 6, 3),
        "volume.npz": np.arange(24.0).reshape(2, 3, 4),
        "cloud.ply": torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        "moment.txt": f"{moment.step} {moment.epoch}",
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_samples_are_written_every_so_many_epochs(tmp_path: Path) -> None:
    """The newest two sets and the milestones are kept; none is half written."""
    settings = ("epochs=9", "samples.every_epochs=1", "samples.keep=2", "samples.keep_every_epochs=4")
    assert line.train(line.recipe(*settings, samples=make_samples), tmp_path / "o") == 0
    folder = tmp_path / "o" / "samples"
    assert names(folder) == ["epoch-000004", "epoch-000008", "epoch-000009"]
    assert names(folder / "epoch-000004") == ["cloud.ply", "moment.txt", "picture.png", "volume.npz"]
    assert (folder / "epoch-000004" / "moment.txt").read_text() == f"{4 * line.STEPS_PER_EPOCH} 3"


def test_samples_of_a_recipe_that_makes_none_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The setting has no effect: one line says so, and nothing does without the setting."""
    for setting, count in (("samples.every_steps=3", 1), ("samples.every_epochs=1", 1), ("samples.keep=1", 0)):
        assert line.train(line.recipe("epochs=1", setting), tmp_path / setting) == 0
        assert capsys.readouterr().out.count("samples ignored: the recipe makes none") == count


@pytest.mark.parametrize("max_steps", [9, 12])
def test_samples_are_written_every_so_many_steps(max_steps: int, tmp_path: Path) -> None:
    """Within epochs, at their ends, and at the end of a run that ends in an epoch; kept by the same count."""
    settings = (
        "epochs=3",
        f"max_steps={max_steps}",
        "samples.every_steps=3",
        "samples.keep=1",
        "samples.keep_every_steps=6",
    )
    assert line.train(line.recipe(*settings, samples=make_samples), tmp_path / "o") == 0
    folder = tmp_path / "o" / "samples"
    assert names(folder) == {9: ["step-00000006", "step-00000009"], 12: ["step-00000006", "step-00000012"]}[max_steps]
    assert (folder / "step-00000006" / "moment.txt").read_text() == "6 1"


def test_samples_of_epochs_and_of_steps_are_in_one_order(tmp_path: Path) -> None:
    """A set that is due by both is the epoch's; the newest are kept, by their steps."""
    settings = ("samples.every_steps=2", "samples.every_epochs=2", "samples.keep=4")
    assert line.train(line.recipe(*settings, samples=make_samples), tmp_path / "o") == 0
    assert names(tmp_path / "o" / "samples") == ["epoch-000002", "step-00000006", "step-00000010", "step-00000012"]


def test_samples_are_made_once_at_each_step_and_after_stops(tmp_path: Path) -> None:
    """A stop doesn't lose a set; one that is made again has the same pictures."""
    made: list[int] = []

    def make(model: nn.Module, moment: Moment) -> Mapping[str, Any]:
        made.append(moment.step)
        return make_samples(model, moment)

    settings = ("max_steps=10", "samples.every_steps=2", "samples.keep=9")
    assert line.train(line.recipe(*settings, samples=make), tmp_path / "whole") == 0
    assert made == [2, 4, 6, 8, 10]
    assert line.train_in_pieces(lambda: line.recipe(*settings, samples=make), tmp_path / "cut", harness.StopAtLook) > 1
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")
    for step in range(2, 11, 2):
        files = [tmp_path / name / "samples" / f"step-{step:08d}" for name in ("whole", "cut")]
        for name in names(files[0]):
            assert (files[0] / name).read_bytes() == (files[1] / name).read_bytes()


def test_samples_leave_training_as_it_is_and_are_the_same_after_a_stop(tmp_path: Path) -> None:
    """They draw from a stream of their own; the run's bits are those of a run without samples."""
    settings = ("samples.every_epochs=2", "validate.every_epochs=0")
    assert line.train(line.recipe("validate.every_epochs=0"), tmp_path / "without") == 0
    make = partial(line.recipe, *settings, samples=make_samples)
    assert line.train(make(), tmp_path / "whole") == 0
    harness.assert_same_run(tmp_path / "whole", tmp_path / "without")
    assert line.train(make(), tmp_path / "cut", harness.StopAtLook(6)) == 0
    assert line.train(make(), tmp_path / "cut") == 0
    pictures = [(tmp_path / name / "samples/epoch-000002/picture.png").read_bytes() for name in ("whole", "cut")]
    assert pictures[0] == pictures[1]


def test_picture_has_its_values(tmp_path: Path) -> None:
    """As another reader sees them: grey levels from bytes, colours from floats in [0, 1], clipped."""
    grey_HW = np.arange(12, dtype=np.uint8).reshape(3, 4)
    (tmp_path / "grey.png").write_bytes(encode_sample("grey.png", grey_HW))
    assert np.array_equal(np.round(matplotlib.image.imread(tmp_path / "grey.png") * 255), grey_HW)
    colours_HW3 = torch.tensor([[[0.0, 0.5, 1.0], [-1.0, 2.0, float("nan")]]])
    (tmp_path / "colours.png").write_bytes(encode_sample("colours.png", colours_HW3))
    read = np.round(matplotlib.image.imread(tmp_path / "colours.png")[..., :3] * 255)
    assert read.tolist() == [[[0, 128, 255], [0, 255, 0]]]


def test_volume_and_cloud_have_their_values(tmp_path: Path) -> None:
    volume_DHW = np.arange(24.0).reshape(2, 3, 4)
    (tmp_path / "volume.npz").write_bytes(encode_sample("volume.npz", volume_DHW))
    assert np.array_equal(np.load(tmp_path / "volume.npz")["data"], volume_DHW)
    points_N3 = torch.rand(5, 3)
    header, _, body = encode_sample("cloud.ply", points_N3).partition(b"end_header\n")
    assert b"element vertex 5" in header
    assert np.array_equal(np.frombuffer(body, "<f4").reshape(5, 3), points_N3.numpy())


@pytest.mark.parametrize("name", ["../up.png", "/etc/x.png", "a/b.png", ".hidden", "", "..", "a\n.png", "x" * 200])
def test_names_that_leave_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    folder = SampleFolder(tmp_path / "samples", SampleSettings(), steps_per_epoch=4)
    with pytest.raises(BadRequestError, match="no usable file name"):
        folder.write({name: b"content"}, step=4, epoch=1)
    assert not (tmp_path / "samples").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("picture.png", torch.zeros(2, 3, 4, 5)),
        ("cloud.ply", torch.zeros(3, 2)),
        ("list.npy", [1, 2]),
        ("object.npy", np.array([object()])),
    ],
)
def test_values_that_do_not_fit_their_name_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadRequestError, match="can't be written"):
        encode_sample(name, value)


def test_set_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A run that makes an epoch's samples again leaves no file of the first time, and nothing of a killed writer."""
    folder = SampleFolder(tmp_path / "samples", SampleSettings(), steps_per_epoch=4)
    (tmp_path / "samples" / ".epoch-000001.new").mkdir(parents=True)
    (tmp_path / "samples" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "samples" / ".DS_Store").write_bytes(b"the user's")
    folder.write({"old.txt": b"1", "both.txt": b"1"}, step=4, epoch=1)
    folder.write({"both.txt": b"2"}, step=4, epoch=1)
    assert names(tmp_path / "samples") == [".DS_Store", ".ipynb_checkpoints", "epoch-000001"]
    assert names(tmp_path / "samples" / "epoch-000001") == ["both.txt"]


def test_disk_that_refuses_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "samples").write_text("a file where the folder would be")
    with pytest.raises(TrainerError, match="could not be written"):
        SampleFolder(tmp_path / "samples", SampleSettings(), steps_per_epoch=4).write({"a.txt": b""}, step=4, epoch=1)
