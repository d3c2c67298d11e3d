"""The same generated pictures in each layout."""

from pathlib import Path

import pytest

from tests.recipes.imagenet.parquet import write_parquet
from trainer.generators.imagenet import generate, pack_shards

TRAINING = 60


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`datasets` keeps what it has converted: not in the home folder."""
    import datasets

    datasets.config.HF_DATASETS_CACHE = str(tmp_path_factory.mktemp("datasets"))


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders")
    generate(folder, count=TRAINING, seed=0)
    return folder


@pytest.fixture(scope="session")
def shards(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("shards")
    pack_shards(folders, target, per_shard=25)
    return target


@pytest.fixture(scope="session")
def parquet(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("parquet")
    write_parquet(folders, target)
    return target
