"""Writes a folder for `kaggle datasets create -p FOLDER`: the weights and Kaggle's metadata."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from trainer.base.errors import BadRequestError
from trainer.base.files import write_atomically

# https://github.com/Kaggle/kaggle-cli/wiki/Dataset-Metadata: a slug has 3 to 50 characters, a title 6 to 50,
# and the licenses are these; any other one is "other".
_DATASET = re.compile(r"[A-Za-z0-9_-]+/[a-z0-9][a-z0-9-]{2,49}")
_LICENSES = {
    "cc0-1.0": "CC0-1.0",
    "cc-by-4.0": "CC-BY-4.0",
    "cc-by-sa-3.0": "CC-BY-SA-3.0",
    "cc-by-sa-4.0": "CC-BY-SA-4.0",
    "cc-by-nc-sa-4.0": "CC-BY-NC-SA-4.0",
    "gpl-2.0": "GPL-2",
    "odbl": "ODbL-1.0",
    "": "unknown",
}
_SHORTEST_TITLE = 6
METADATA = "dataset-metadata.json"


def check_dataset(dataset: str) -> None:
    """Check that Kaggle accepts a dataset's name.

    Raises:
        BadRequestError: it doesn't.
    """
    if not _DATASET.fullmatch(dataset):
        raise BadRequestError(
            f"--set publish.kaggle_dataset={dataset} is not a valid name",
            why="it is OWNER/SLUG; a slug has 3 to 50 lower-case letters, digits and hyphens",
            fix="for example --set publish.kaggle_dataset=me/digits-weights",
        )


def write_dataset(folder: Path, dataset: str, files: Sequence[Path], *, license_id: str) -> None:
    """Replace the folder by a new one with the files and their metadata.

    Args:
        folder: the argument for `kaggle datasets create -p`.
        dataset: OWNER/SLUG.
        files: the files for the data set; hard-linked where the disk supports it, else copied.
        license_id: the Hugging Face Hub's identifier; empty for none.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in files:
        _link_or_copy(path, folder / path.name)
    text = render_metadata(dataset, license_id=license_id)
    write_atomically(folder / METADATA, lambda stream: stream.write(text.encode()))


def render_metadata(dataset: str, *, license_id: str) -> str:
    """Render dataset-metadata.json."""
    licenses = [{"name": name_license(license_id)}]
    return json.dumps({"title": title_of(dataset), "id": dataset, "licenses": licenses}, indent=2) + "\n"


def title_of(dataset: str) -> str:
    """Return a data set's title: the slug in words, with "weights" added if it is too short."""
    title = dataset.partition("/")[2].replace("-", " ")
    return title if len(title) >= _SHORTEST_TITLE else f"{title} weights"


def name_license(license_id: str) -> str:
    """Return Kaggle's name of a license; "other" if Kaggle doesn't list it."""
    return _LICENSES.get(license_id.lower(), "other")


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(source, target)
