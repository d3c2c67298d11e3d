"""Folders, tar shards and parquet files: the same pictures, found by themselves or by data.layout."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from tests.recipes.imagenet.conftest import TRAINING
from tests.recipes.imagenet.parquet import write_parquet
from trainer.api import BadRequestError, SampleSource
from trainer.base.errors import TrainerError
from trainer.checks import check_data
from trainer.recipes.imagenet.layouts import Reading, Splits, open_pictures
from trainer.recipes.imagenet.pictures import Prepare, middle_square

PLAIN = Prepare(crop=lambda picture, _: middle_square(picture, 32))
Layout = Literal["auto", "folders", "shards", "parquet"]


def open_folder(folder: Path, layout: Layout = "auto", *, classes: int = 0) -> Splits:
    return open_pictures(Reading(folder=folder, classes=classes, train=PLAIN, validation=PLAIN), layout)


def read_all(source: SampleSource) -> Counter[tuple[int, bytes]]:
    """Read all samples, whatever their order: class and bytes."""
    samples = [source.sample(index, np.random.default_rng(0)) for index in range(len(source))]
    return Counter((int(label), picture_CHW.numpy().tobytes()) for picture_CHW, label in samples)


def test_all_layouts_have_the_same_pictures_with_the_same_classes(folders: Path, shards: Path, parquet: Path) -> None:
    opened = [open_folder(folders), open_folder(shards, classes=6), open_folder(parquet)]
    assert [splits.classes for splits in opened] == [6, 6, 6]
    train, *others = [read_all(splits.train) for splits in opened]
    assert train.total() == TRAINING
    assert all(other == train for other in others)
    validation, *others = [read_all(splits.validation) for splits in opened]
    assert validation.total() == TRAINING // 4
    assert all(other == validation for other in others)
    assert [splits.about for splits in opened] == [
        "6 classes in ImageNet's layout of folders",
        "6 classes in tar shards",
        "6 classes in parquet files of Hugging Face's layout",
    ]


def test_samples_are_pictures_and_whole_numbers(folders: Path) -> None:
    picture_CHW, label = open_folder(folders).train.sample(0, np.random.default_rng(0))
    assert (picture_CHW.shape, picture_CHW.dtype) == ((3, 32, 32), torch.float32)
    assert label.dtype == torch.int64


def test_a_folder_with_several_layouts_needs_a_choice(folders: Path, shards: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    shutil.copytree(folders, both)
    shutil.copytree(shards, both, dirs_exist_ok=True)
    with pytest.raises(BadRequestError, match="has several layouts: folders, shards") as caught:
        open_folder(both)
    assert "data.layout=folders" in caught.value.fix
    assert len(open_folder(both, "folders").train) == TRAINING
    assert len(open_folder(both, "shards", classes=6).train) == TRAINING


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("auto", "has no pictures"),
        ("folders", r"no pictures .*train/CLASS"),
        ("shards", r"no pictures .*\*train\*\.tar"),
        ("parquet", r"no pictures .*train-\*\.parquet"),
    ],
)
def test_an_empty_folder_is_refused(layout: Layout, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match=said):
        open_folder(tmp_path, layout, classes=6)


def test_a_class_that_only_validation_has_is_refused(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders, tmp_path / "data")
    (tmp_path / "data" / "val" / "n99999999").mkdir()
    with pytest.raises(BadRequestError, match="has classes that train/ has not: n99999999"):
        open_folder(tmp_path / "data")


def test_shards_need_the_number_of_classes(shards: Path) -> None:
    with pytest.raises(BadRequestError, match=r"tar shards need data\.classes"):
        open_folder(shards)


def test_too_few_classes_are_refused_or_named_with_the_picture(folders: Path, shards: Path) -> None:
    """A shard's classes are only seen when its samples are read."""
    with pytest.raises(BadRequestError, match=r"data\.classes=5 is too small"):
        open_folder(folders, classes=5)
    with pytest.raises(TrainerError, match=r"the picture [nv]\w+ has the class 5"):
        read_all(open_folder(shards, classes=5).train)
    assert open_folder(folders, classes=1000).classes == 1000


def test_parquet_files_without_labels_are_refused(parquet: Path, tmp_path: Path) -> None:
    """As `test-*.parquet` of ImageNet, whose labels are -1, or as files of another data set."""
    from datasets import Dataset

    for split in ("train", "validation"):
        Dataset.from_dict({"text": ["a"]}).to_parquet(str(tmp_path / f"{split}-00000-of-00001.parquet"))
    with pytest.raises(BadRequestError, match="are not pictures with classes"):
        open_folder(tmp_path)


def test_index_of_shards_is_kept_where_they_are(folders: Path, tmp_path: Path) -> None:
    """Headers of 1.28 million pictures are read once; a folder that can't be written does without."""
    from trainer.generators.imagenet import pack_shards

    pack_shards(folders, tmp_path, per_shard=25)
    open_folder(tmp_path, classes=6)
    assert len(list((tmp_path / ".shard-index").iterdir())) == 4
    assert all(
        re.fullmatch(r"imagenet-(train|val)-\d{6}\.tar\..*\.npz", p.name) for p in (tmp_path / ".shard-index").iterdir()
    )


def test_parquet_files_may_lie_in_the_folder_itself(folders: Path, tmp_path: Path) -> None:
    write_parquet(folders, tmp_path / "hub", files=1)
    assert len(open_folder(tmp_path / "hub" / "data").train) == TRAINING


def test_hidden_folders_are_no_classes_and_hidden_files_no_pictures(folders: Path, tmp_path: Path) -> None:
    """A notebook leaves .ipynb_checkpoints, a Mac ._NAME beside each file; the check leaves them alone too."""
    data = Path(shutil.copytree(folders, tmp_path / "data"))
    picture = next((data / "train" / "n90000000").iterdir())
    for split in ("train", "val"):
        (data / split / ".ipynb_checkpoints").mkdir()
        shutil.copy(picture, data / split / ".ipynb_checkpoints" / "a-checkpoint.jpeg")
    (picture.parent / ".ipynb_checkpoints").mkdir()
    (picture.parent / f"._{picture.name}").write_bytes(b"Mac OS X")
    opened = open_folder(data)
    assert (opened.classes, len(opened.train)) == (6, TRAINING)
    assert check_data("imagenet", data).problems == {}
