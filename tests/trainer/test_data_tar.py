"""Tar shards as numbered samples: found once, read by offset, safe against what strangers put into them."""

import io
import json
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from trainer.base.errors import BadRequestError, TrainerError
from trainer.data.loader import BatchLoader
from trainer.data.seeded import sample_rng
from trainer.data.tar import TarSource, find_shards

RNG = sample_rng(seed=0, epoch=0, index=0)
Files = dict[str, bytes]


def write_shard(path: Path, files: Files | list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items() if isinstance(files, dict) else files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def encode(array: np.ndarray[Any, Any], *, allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=allow_pickle)
    return stream.getvalue()


def draw(colour: tuple[int, int, int]) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 2), colour).save(stream, "PNG")
    return stream.getvalue()


def write_shards(folder: Path, *, shards: int = 3, samples: int = 4) -> str:
    for shard in range(shards):
        numbers = range(shard * samples, (shard + 1) * samples)
        files = {f"train/{number:04}.{kind}": data for number in numbers for kind, data in make_files(number).items()}
        write_shard(folder / f"s-{shard:02}.tar", files)
    return str(folder / f"s-{{00..{shards - 1:02}}}.tar")


def make_files(number: int) -> Files:
    return {"npy": encode(np.full(3, number)), "cls": str(number).encode()}


def read_labels(source: TarSource, **place: int) -> list[list[int]]:
    workers, rank, ranks = (place.pop(name, default) for name, default in (("workers", 0), ("rank", 0), ("ranks", 1)))
    loader = BatchLoader(source, seed=1, device=torch.device("cpu"), workers=workers, rank=rank, world_size=ranks)
    batches = list(loader.batches(epoch=0, batch_size=4, **place))
    loader.close()
    return [batch["cls"].tolist() for batch in batches]


def test_files_of_a_key_are_one_sample_decoded_by_extension(tmp_path: Path) -> None:
    """Images, arrays, classes, texts and JSON are decoded; the rest is bytes; capital letters make no difference."""
    shard = write_shard(
        tmp_path / "a.tar",
        {
            "set/cat.1.PNG": draw((255, 0, 7)),
            "set/cat.cls": b"3\n",
            "set/cat.txt": "Käthe".encode(),
            "set/cat.meta.json": json.dumps({"boxes": [1, 2]}).encode(),
            "set/cat.xyz": b"\x00\x01",
            "set/dog.cls": b"4",
            "README": b"no extension: no sample",
            "set/.hidden": b"no name: no sample",
        },
    )
    source = TarSource(shard)
    cat, dog = (source.sample(index, RNG) for index in range(2))
    assert cat["1.png"].shape == (3, 2, 4)
    assert cat["1.png"].dtype == torch.uint8
    assert cat["1.png"][:, 0, 0].tolist() == [255, 0, 7]
    assert (cat["cls"], cat["txt"], cat["meta.json"], cat["xyz"]) == (3, "Käthe", {"boxes": [1, 2]}, b"\x00\x01")
    assert dog == {"__key__": "set/dog", "cls": 4}
    assert len(source) == 2


def test_any_worker_and_rank_reads_the_same_samples_and_resumes_exactly(tmp_path: Path) -> None:
    """Two workers, two ranks and a resumed epoch have the batches of one process; every sample comes once."""
    source = TarSource(write_shards(tmp_path), mixed=2)
    whole = read_labels(source)
    assert sorted(label for batch in whole for label in batch) == list(range(12))
    assert read_labels(source, workers=2) == whole
    assert read_labels(source, first_step=2) == whole[2:]
    ranks = [read_labels(source, rank=rank, ranks=2) for rank in range(2)]
    assert [one + other for one, other in zip(*ranks, strict=True)] == whole


def test_transform_has_the_samples_own_randomness_and_only_leaves_files_out(tmp_path: Path) -> None:
    """A transform gets the decoded dict and a generator; extensions that aren't asked for aren't read."""
    pattern = write_shards(tmp_path)
    source = TarSource(pattern, only=["cls"], transform=lambda sample, rng: (sample, rng.random()))
    expected = sample_rng(seed=0, epoch=0, index=5).random()
    assert source.sample(5, sample_rng(seed=0, epoch=0, index=5)) == ({"__key__": "train/0005", "cls": 5}, expected)


def test_index_is_kept_and_made_anew_when_a_shard_changes(tmp_path: Path) -> None:
    """The second start reads no headers; a changed shard and a damaged index are read again."""
    path, folder = tmp_path / "a.tar", tmp_path / "index"
    write_shard(path, {"a.cls": b"1"})
    assert len(TarSource(path, index_folder=folder)) == 1
    (kept,) = folder.iterdir()
    # Same size and time, but no tar file any more: only who reads the headers sees it.
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    whole = path.read_bytes()
    path.write_bytes(b"x" * len(whole))
    os.utime(path, ns=times)
    assert len(TarSource(path, index_folder=folder)) == 1
    write_shard(path, {"a.cls": b"1", "b.cls": b"2"})
    os.utime(path, ns=(times[0], times[1] + 1))
    assert len(TarSource(path, index_folder=folder)) == 2
    kept.write_bytes(b"PK damaged")
    assert TarSource(path, index_folder=folder).sample(1, RNG)["cls"] == 2


@pytest.mark.parametrize("missing", [0, 1, 512, 1000, 2048, 4096, 5000, 8192])
def test_truncated_shards_are_refused_by_name(tmp_path: Path, missing: int) -> None:
    """A shard that was not copied whole is found at the start, wherever it ends."""
    path = write_shard(tmp_path / "part.tar", {f"{number}.npy": encode(np.zeros(150)) for number in range(4)})
    files = 4 * (512 + 3 * 512)  # 128 bytes of NumPy's header and 1,200 of numbers fill three blocks
    path.write_bytes(path.read_bytes()[: files - missing])
    with pytest.raises(BadRequestError, match=r"part\.tar") as raised:
        TarSource(path)
    assert "copy it again" in raised.value.fix


def test_shards_that_are_no_plain_tar_files_are_refused(tmp_path: Path) -> None:
    """Compressed, foreign and missing files are named with the reason."""
    with tarfile.open(tmp_path / "a.tar", "w:gz"):
        pass
    (tmp_path / "b.tar").write_bytes(b"something else" * 100)
    for name, why in (("a.tar", "compressed"), ("b.tar", "tar file"), ("c.tar", "No such file")):
        with pytest.raises(BadRequestError) as raised:
            TarSource(tmp_path / name)
        assert why in raised.value.why
        assert name in raised.value.what


def test_sizes_that_lie_and_links_are_not_followed(tmp_path: Path) -> None:
    """A member larger than its shard is refused; a link out of the shard is no file of a sample; no name is opened."""
    (tmp_path / "secret.txt").write_text("secret")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("a.txt")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret.txt")
        tar.addfile(link)
        member = tarfile.TarInfo("../../a.cls")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"7"))
    (sample,) = [TarSource(tmp_path / "a.tar").sample(index, RNG) for index in range(1)]
    assert sample == {"__key__": "../../a", "cls": 7}
    header = tarfile.TarInfo("a.bin")
    header.size = 1 << 40
    (tmp_path / "b.tar").write_bytes(header.tobuf() + bytes(4096))
    with pytest.raises(BadRequestError, match=r"b\.tar") as raised:
        TarSource(tmp_path / "b.tar")
    assert "does not fit" in raised.value.why


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    """Extensions of pickles are refused at the start unless left out, and an array of objects when it is read."""
    bomb = pickle.dumps(Bomb())
    shard = write_shard(tmp_path / "a.tar", {"a.pt": bomb, "a.cls": b"1"})
    with pytest.raises(BadRequestError, match=r"\.pt") as raised:
        TarSource(shard)
    assert "run code" in raised.value.why
    assert TarSource(shard, only=["cls"]).sample(0, RNG)["cls"] == 1
    assert TarSource(shard, decoders={"pt": len}).sample(0, RNG)["pt"] == len(bomb)
    objects = encode(np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(TrainerError, match=r"a\.npy"):
        TarSource(write_shard(tmp_path / "b.tar", {"a.npy": objects})).sample(0, RNG)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("k.npy", b"\x93NUMPY garbage"),
        ("k.png", b"\x89PNG\r\n garbage"),
        ("k.json", b"[" * 100_000),
        ("k.cls", b"seven"),
        ("k.txt", b"\xff\xfe"),
        ("k.jpg", b""),
    ],
)
def test_files_that_dont_decode_are_reported_with_key_and_shard(tmp_path: Path, name: str, data: bytes) -> None:
    """One error of ours for any damaged file, with its place."""
    source = TarSource(write_shard(tmp_path / "shard.tar", {name: data}))
    with pytest.raises(TrainerError, match=rf"{name} in the shard .*shard\.tar"):
        source.sample(0, RNG)


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    """Two samples with one key would be mixed."""
    shard = write_shard(tmp_path / "a.tar", [("a.cls", b"1"), ("a.cls", b"2")])
    with pytest.raises(BadRequestError) as raised:
        TarSource(shard)
    assert "a.cls twice" in raised.value.why


def test_patterns_name_shards_in_order(tmp_path: Path) -> None:
    """Braces with numbers keep their zeros, braces with words and globs work, and no match is refused."""
    for name in ("a-08.tar", "a-09.tar", "a-10.tar", "b-08.tar"):
        (tmp_path / name).touch()

    def names(pattern: str | list[str]) -> list[str]:
        full = [str(tmp_path / part) for part in ([pattern] if isinstance(pattern, str) else pattern)]
        return [path.name for path in find_shards(full)]

    assert names("a-{08..10}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar"]
    assert names("{a,b}-08.tar") == ["a-08.tar", "b-08.tar"]
    assert names("a-*.tar") == ["a-08.tar", "a-09.tar", "a-10.tar"]
    assert names(["b-08.tar", "a-08.tar"]) == ["b-08.tar", "a-08.tar"]
    with pytest.raises(BadRequestError, match="no shards"):
        names("c-*.tar")
