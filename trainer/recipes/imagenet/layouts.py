"""The three layouts of ImageNet on a disk: folders of pictures, tar shards, Hugging Face's parquet files."""

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from trainer.api import ArraySource, BadRequestError, Batch, HubDataset, SampleSource, TarSource
from trainer.base.errors import TrainerError
from trainer.checks.imagenet import PICTURES, find_layouts, list_classes, list_files, list_parquet, list_shards
from trainer.recipes.imagenet.pictures import Prepare

Layout = Literal["auto", "folders", "shards", "parquet"]
_INDEX = ".shard-index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Training and validation pictures, how many classes they have, and a line about them for the model card."""

    train: SampleSource
    validation: SampleSource
    classes: int
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is read: a folder, the number of classes (0: not known), and how samples are made for each split."""

    folder: Path
    classes: int
    train: Prepare
    validation: Prepare


def open_pictures(reading: Reading, layout: Layout) -> Splits:
    """Open the data in a layout, or in the one that the folder has.

    Raises:
        BadRequestError: the folder has none of the layouts, or several; a split or a class is missing.
    """
    if layout == "auto":
        layout = _recognise(reading.folder)
    splits = _OPEN[layout](reading)
    if reading.classes and reading.classes < splits.classes:
        raise BadRequestError(
            f"data.classes={reading.classes} is too small",
            why=f"{reading.folder} has {splits.classes} classes",
            fix="leave data.classes at 0",
        )
    return splits


def _recognise(folder: Path) -> Layout:
    found = find_layouts(folder)
    if len(found) == 1:
        return found[0]
    what = f"has several layouts: {', '.join(found)}" if found else "has no pictures"
    raise BadRequestError(
        f"the data folder {folder} {what}",
        why="it has train/CLASS/*.jpeg and val/CLASS/*.jpeg (also .jpg, .png), or *train*.tar and *val*.tar, "
        "or train-*.parquet and validation-*.parquet",
        fix="choose one with --set data.layout=folders, shards or parquet" if found else "set data.folder",
    )


def open_folders(reading: Reading) -> Splits:
    """Open train/CLASS/* and val/CLASS/*; classes are numbered by name."""
    classes = sorted(list_classes(reading.folder / "train"))
    strange = sorted(list_classes(reading.folder / "val") - set(classes))
    if strange:
        raise BadRequestError(
            f"{reading.folder / 'val'} has classes that train/ has not: {', '.join(strange[:5])}",
            why="nothing could learn them",
            fix="the folders of train/ and val/ have the same names: `python -m trainer check imagenet` lists them all",
        )
    return Splits(
        train=_open_folder(reading.folder / "train", classes, reading.train),
        validation=_open_folder(reading.folder / "val", classes, reading.validation),
        classes=max(reading.classes, len(classes)),
        about=f"{len(classes)} classes in ImageNet's layout of folders",
    )


def _open_folder(folder: Path, classes: list[str], prepare: Prepare) -> ArraySource:
    files = [(str(path), label) for label, name in enumerate(classes) for path in _list_pictures(folder / name)]
    if not files:
        raise _missing(folder, "CLASS/*.jpeg, .jpg or .png")

    def read(sample: Batch, rng: np.random.Generator) -> Batch:
        path = files[int(sample[0])][0]
        return prepare(path, sample[1], path, rng)

    return ArraySource(torch.arange(len(files)), torch.tensor([label for _, label in files]), transform=read)


def _list_pictures(folder: Path) -> Iterator[Path]:
    return (path for path in list_files(folder) if path.suffix.lower() in PICTURES)


def open_shards(reading: Reading) -> Splits:
    """Open *train*.tar and *val*.tar, whose samples are KEY.jpg (or .jpeg, .png) and KEY.cls, the class's number."""
    if not reading.classes:
        raise BadRequestError(
            "tar shards need data.classes",
            why="a shard has numbers of classes, and not how many there are",
            fix="--set data.classes=1000 for ImageNet",
        )

    def open_split(split: str, prepare: Prepare) -> TarSource:
        paths = list_shards(reading.folder, split)
        if not paths:
            raise _missing(reading.folder, f"*{split}*.tar")
        return TarSource(
            paths,
            only=("cls", *_EXTENSIONS),
            decoders=dict.fromkeys(_EXTENSIONS, bytes),
            transform=_from_shard(prepare, reading.classes),
            index_folder=reading.folder / _INDEX if os.access(reading.folder, os.W_OK) else None,
        )

    return Splits(
        train=open_split("train", reading.train),
        validation=open_split("val", reading.validation),
        classes=reading.classes,
        about=f"{reading.classes} classes in tar shards",
    )


_EXTENSIONS = tuple(extension.removeprefix(".") for extension in PICTURES)


def _from_shard(prepare: Prepare, classes: int) -> Callable[[dict[str, Any], np.random.Generator], Batch]:
    def read(sample: dict[str, Any], rng: np.random.Generator) -> Batch:
        name = sample["__key__"]
        data = next((sample[extension] for extension in _EXTENSIONS if extension in sample), None)
        if data is None or "cls" not in sample:
            raise TrainerError(
                f"the sample {name} of a shard is incomplete",
                why=f"it has {', '.join(sorted(sample))}, and needs a picture and .cls",
                fix="write the shard again; `python -m trainer check imagenet --data FOLDER` lists all such samples",
            )
        return prepare(io.BytesIO(data), _check_label(sample["cls"], classes, name), name, rng)

    return read


def open_parquet(reading: Reading) -> Splits:
    """Open train-*.parquet and validation-*.parquet, in the folder or its data/: columns `image` and `label`.

    So are the files of huggingface.co/datasets/ILSVRC/imagenet-1k. `datasets` writes them once into its cache
    (HF_DATASETS_CACHE), which needs as much room again.
    """
    if find_spec("datasets") is None:
        raise BadRequestError(
            "parquet files can't be read", why="datasets is not installed", fix="pip install datasets"
        )
    from datasets import Image, disable_progress_bars, load_dataset  # noqa: PLC0415 - an optional package

    files = {split: [str(path) for path in list_parquet(reading.folder, split)] for split in ("train", "validation")}
    for split, paths in files.items():
        if not paths:
            raise _missing(reading.folder, f"{split}-*.parquet")
    disable_progress_bars()
    opened = load_dataset("parquet", data_files=files)
    _check_columns(reading.folder, opened["train"].column_names)
    classes = reading.classes or _count_classes(opened["train"])

    def open_split(split: str, prepare: Prepare) -> HubDataset:
        # Bytes are decoded here: `datasets` would take any format that Pillow knows.
        return HubDataset(opened[split].cast_column("image", Image(decode=False)), _from_row(prepare, classes))

    return Splits(
        train=open_split("train", reading.train),
        validation=open_split("validation", reading.validation),
        classes=classes,
        about=f"{classes} classes in parquet files of Hugging Face's layout",
    )


def _check_columns(folder: Path, columns: list[str]) -> None:
    if not {"image", "label"} <= set(columns):
        raise BadRequestError(
            f"the parquet files in {folder} are not pictures with classes",
            why=f"their columns are {', '.join(columns)}",
            fix="they need `image` and `label`, as ILSVRC/imagenet-1k has them",
        )


def _count_classes(dataset: Any) -> int:
    """Count the classes that the files name, else the highest label."""
    named = getattr(dataset.features["label"], "num_classes", None)
    return int(named or 1 + max(dataset.unique("label")))


def _from_row(prepare: Prepare, classes: int) -> Callable[[Any, np.random.Generator], Batch]:
    def read(row: Any, rng: np.random.Generator) -> Batch:
        image = row["image"]
        name = str(image.get("path") or "of a row")
        return prepare(io.BytesIO(image["bytes"] or b""), _check_label(row["label"], classes, name), name, rng)

    return read


def _check_label(label: int, classes: int, name: str) -> int:
    if 0 <= label < classes:
        return int(label)
    raise TrainerError(
        f"the picture {name} has the class {label}",
        why=f"there are {classes} classes, from 0 to {classes - 1}",
        fix="set data.classes to their number, or leave the picture out; files without labels are for a contest",
    )


def _missing(folder: Path, pattern: str) -> BadRequestError:
    return BadRequestError(
        f"no pictures {folder}/{pattern}", why="training and validation need some each", fix="set data.folder"
    )


_OPEN: dict[str, Callable[[Reading], Splits]] = {
    "folders": open_folders,
    "shards": open_shards,
    "parquet": open_parquet,
}
