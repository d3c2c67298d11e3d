"""`python -m trainer check imagenet`: each mistake is found, by its kind, and nothing else."""

import shutil
import tarfile
from pathlib import Path

import pytest

from tests.recipes.imagenet.conftest import TRAINING
from trainer.checks import check_data
from trainer.generators import generate_data

JPEG_END = 2


@pytest.fixture
def own_folders(folders: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(folders, tmp_path / "data"))


@pytest.fixture
def own_shards(shards: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shards, tmp_path / "data"))


@pytest.fixture
def own_parquet(parquet: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(parquet, tmp_path / "data"))


def find(folder: Path) -> dict[str, list[tuple[str, str]]]:
    return check_data("imagenet", folder).problems


def test_nothing_is_wrong_with_generated_data_in_any_layout(folders: Path, shards: Path, parquet: Path) -> None:
    found = [check_data("imagenet", folder) for folder in (folders, shards, parquet)]
    assert [each.problems for each in found] == [{}, {}, {}]
    assert [each.training_samples for each in found] == [TRAINING, TRAINING, None]
    assert found[0].counts == {
        "classes in train/": 6,
        "pictures in train/": TRAINING,
        "classes in val/": 6,
        "pictures in val/": TRAINING // 4,
    }
    assert found[1].counts["train shards"] == 3
    assert found[2].counts == {"train parquet files": 2, "validation parquet files": 2}


def test_a_folder_without_pictures_is_missing_all(tmp_path: Path) -> None:
    assert set(find(tmp_path)) == {"missing"}


def test_classes_that_one_split_lacks_or_that_are_empty_are_missing(own_folders: Path) -> None:
    shutil.rmtree(own_folders / "val" / "n90000001")
    (own_folders / "train" / "n99999999").mkdir()
    assert find(own_folders) == {
        "missing": [
            ("train/n99999999", "the class has no pictures"),
            ("val/n90000001", "train/ has this class"),
            ("val/n99999999", "train/ has this class"),
        ]
    }


def test_pictures_that_are_cut_empty_or_none_are_told_apart(own_folders: Path) -> None:
    cut, empty, none, png = sorted((own_folders / "train" / "n90000000").iterdir())[:4]
    data = cut.read_bytes()
    cut.write_bytes(data[:-JPEG_END])
    empty.write_bytes(b"")
    none.write_text("<html>404</html>")
    png.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40) + b"IEND\xaeB`\x82")  # as n02105855_2933.JPEG of ImageNet
    problems = find(own_folders)
    assert {path for path, _ in problems.pop("truncated")} == {str(p.relative_to(own_folders)) for p in (cut, empty)}
    assert problems == {
        "unreadable": [
            (str(none.relative_to(own_folders)), "neither JPEG nor PNG: it begins with 3c 68 74 6d 6c 3e 34 30")
        ]
    }


def test_bytes_after_the_end_of_a_picture_are_no_problem(own_folders: Path) -> None:
    """Some cameras add a few."""
    path = next((own_folders / "train" / "n90000000").iterdir())
    path.write_bytes(path.read_bytes() + bytes(100))
    assert find(own_folders) == {}


def test_files_in_the_wrong_place_are_misnamed_or_unlabelled(own_folders: Path) -> None:
    """val/ as ImageNet's archive has it, without classes, is the usual one; hidden files are left alone."""
    picture = next((own_folders / "val" / "n90000000").iterdir())
    shutil.copy(picture, own_folders / "val" / "ILSVRC2012_val_00000001.JPEG")
    (own_folders / "train" / "LOC_train_solution.csv").touch()
    (own_folders / "train" / "n90000000" / "a.gif").touch()
    (own_folders / "train" / "n90000000" / "more").mkdir()
    (own_folders / "train" / "n90000000" / ".DS_Store").touch()
    problems = find(own_folders)
    assert [path for path, _ in problems.pop("unlabelled")] == ["val/ILSVRC2012_val_00000001.JPEG"]
    assert sorted(path for path, _ in problems.pop("misnamed")) == [
        "train/LOC_train_solution.csv",
        "train/n90000000/a.gif",
        "train/n90000000/more",
    ]
    assert problems == {}


def test_shards_that_are_cut_are_truncated_and_what_came_before_counts(own_shards: Path) -> None:
    whole, within, other = sorted(own_shards.glob("*train*.tar"))
    within.write_bytes(within.read_bytes()[:20_000])
    other.write_bytes(other.read_bytes().rstrip(b"\0"))
    whole.write_bytes(b"not a tar file" * 100)
    found = check_data("imagenet", own_shards)
    assert {path for path, _ in found.problems["truncated"]} == {whole.name, within.name, other.name}
    assert found.training_samples is not None
    assert 0 < found.training_samples < TRAINING


def test_samples_of_shards_need_a_whole_picture_and_a_number(own_shards: Path) -> None:
    import io

    def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))

    whole = b"\xff\xd8\xff\xe0 picture \xff\xd9"
    with tarfile.open(own_shards / "more-train-0.tar", "w") as tar:
        add(tar, "a.jpg", whole)
        add(tar, "b.cls", b"3")
        add(tar, "c.jpg", whole[:-2])
        add(tar, "c.cls", b"cat")
        add(tar, f"{'long/' * 40}d.jpg", whole)
        add(tar, f"{'long/' * 40}d.cls", b"5\n")
    problems = find(own_shards)
    assert problems == {
        "truncated": [("more-train-0.tar", "c.jpg: the end of the JPEG is missing after 13 bytes")],
        "unlabelled": [("more-train-0.tar", "c.cls: it has no number"), ("more-train-0.tar", "a has no .cls")],
        "missing": [("more-train-0.tar", "b has a .cls, and no picture")],
    }


def test_parquet_files_that_are_cut_absent_or_none_are_told_apart(own_parquet: Path) -> None:
    first, second = sorted((own_parquet / "data").glob("train-*"))
    first.write_bytes(first.read_bytes()[:-10])
    second.rename(own_parquet / "data" / "train-00002-of-00003.parquet")
    validation = sorted((own_parquet / "data").glob("validation-*"))
    validation[0].write_bytes(b"version https://git-lfs.github.com/spec/v1")  # a pointer in place of the file
    problems = find(own_parquet)
    assert {kind: [path for path, _ in each] for kind, each in problems.items()} == {
        "truncated": ["data/train-00000-of-00002.parquet"],
        "missing": [
            "data/train-00001-of-00002.parquet",
            "data/train-00000-of-00003.parquet",
            "data/train-00001-of-00003.parquet",
        ],
        "unreadable": ["data/validation-00000-of-00002.parquet"],
    }


def test_several_layouts_in_one_folder_are_all_checked(own_folders: Path, shards: Path) -> None:
    shutil.copytree(shards, own_folders, dirs_exist_ok=True)
    found = check_data("imagenet", own_folders)
    assert [what for _, what in found.problems["misnamed"]] == [
        "it has several layouts: folders, shards; the setting is data.layout, here --only"
    ]
    assert {"pictures in train/", "samples in train shards"} <= found.counts.keys()


def test_a_layout_that_is_asked_for_is_the_only_one_checked(own_folders: Path) -> None:
    """ILSVRC's archives may lie beside what was unpacked of them; a layout that isn't there is missing."""
    (own_folders / "ILSVRC2012_img_train.tar").write_bytes(b"an archive of archives")
    found = check_data("imagenet", own_folders, only="folders")
    assert found.problems == {}
    assert found.training_samples == TRAINING
    assert set(check_data("imagenet", own_folders, only="parquet").problems) == {"missing"}


def test_the_same_seed_generates_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate_data("imagenet", tmp_path / name, count=12, seed=seed)
    content = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.JPEG")}
        for name in ("a", "b", "c")
    ]
    assert content[0] == content[1]
    assert content[0].keys() == content[2].keys()
    assert content[0] != content[2]
