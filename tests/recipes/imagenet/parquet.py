"""Writes generated pictures as Hugging Face's parquet files."""

from pathlib import Path

from datasets import ClassLabel, Dataset, Features, Image, disable_progress_bars


def write_parquet(folder: Path, target: Path, *, files: int = 2) -> None:
    """Write a generated folder in the layout of ILSVRC/imagenet-1k: data/SPLIT-NNNNN-of-NNNNN.parquet."""
    (target / "data").mkdir(parents=True)
    disable_progress_bars()
    names = sorted(path.name for path in (folder / "train").iterdir())
    features = Features({"image": Image(), "label": ClassLabel(names=names)})
    for split, source in (("train", "train"), ("validation", "val")):
        paths = sorted((folder / source).glob("*/*"), key=lambda path: path.stem)
        rows = [{"image": {"bytes": path.read_bytes(), "path": path.name}, "label": path.parent.name} for path in paths]
        for number in range(files):
            part = Dataset.from_list(rows[number::files], features=features)
            part.to_parquet(str(target / "data" / f"{split}-{number:05}-of-{files:05}.parquet"))
