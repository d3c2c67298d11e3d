"""The search itself: a secret is found in any wrapping, and an added leak fails the sweep."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
import zstandard

from tests.sweep.folders import search_folder
from tests.sweep.secrets import Secrets
from tests.sweep.table import TABLE, assert_allowed
from tests.sweep.watching import watching


def tarred(data: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("folder/file")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


WRAPPINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
    "base64, one letter later": lambda data: base64.b64encode(b"x" + data),
    "base64, two letters later": lambda data: base64.b64encode(b"xy" + data),
    "url": lambda data: quote(data).encode(),
    "json": lambda data: json.dumps(data.decode()).encode(),
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "zstd": zstandard.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "tar.gz": tarred,
    "two files of gzip, one after the other": lambda data: gzip.compress(b"before") + gzip.compress(data),
    "a file of gzip that breaks off": lambda data: gzip.compress(data + os.urandom(100_000))[:50_000],
    "gzip in base64 in gzip": lambda data: gzip.compress(b"content: " + base64.b64encode(gzip.compress(data * 3))),
    "its beginning": lambda data: data[:20],
    "its end": lambda data: data[-20:],
}


@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=list(WRAPPINGS))
def test_a_secret_is_found_in(wrap: Callable[[bytes], bytes]) -> None:
    """And no other secret."""
    secrets = Secrets()
    values = [secrets.make(name).encode() for name in ("one", "two", "three")]
    assert secrets.find(wrap(values[1])) == {"two"}
    assert secrets.find(wrap(b"nothing of it, " * 9)) == set()


def test_the_private_half_of_a_key_is_found(tmp_path: Path) -> None:
    """In YAML and in JSON; the public half isn't reported."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    secrets = Secrets()
    secrets.add_key("key", key.read_text())
    assert secrets.find("".join(f"    {line}" for line in key.read_text().splitlines(keepends=True)).encode()) == {
        "key"
    }
    assert secrets.find(json.dumps(key.read_text()).encode()) == {"key"}
    assert secrets.find(key.with_suffix(".pub").read_bytes()) == set()


def test_names_and_links_of_files_are_searched(tmp_path: Path) -> None:
    """In addition to their content."""
    secrets = Secrets()
    name, target, text = (secrets.make(each) for each in ("name", "target", "text"))
    (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(f"/nowhere/{target}")
    (tmp_path / "file").write_bytes(gzip.compress(text.encode()))
    found = search_folder(secrets, tmp_path, lambda path: f"laptop {path}")
    assert set(found) == {("name", f"laptop {name}"), ("target", "laptop link"), ("text", "laptop file")}


def test_a_process_s_arguments_and_environment_are_seen() -> None:
    """Arguments and environment, of a process that was there before and of one that starts."""
    secrets = Secrets()
    argument, variable = secrets.make("argument"), secrets.make("variable")
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "THERE": variable}) as there:
        with watching(secrets) as watcher:
            subprocess.run(
                [sys.executable, "-m", "timeit", "-n", "1", "import time; time.sleep(.6)", argument], check=False
            )
            seen = watcher.close()
        there.kill()
    assert set(seen.found) == {("argument", "argv timeit"), ("variable", "environ sleep")}


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="the kernel tells root on Linux alone")
def test_hardly_a_short_process_is_missed() -> None:
    """Of programs that end at once, one after the other, on an idle and on a busy computer."""
    secrets = Secrets()
    values = [secrets.make(str(number)) for number in range(40)]
    with watching(secrets) as watcher:
        for value in values:
            subprocess.run(["/bin/true", value], check=True)
        seen = watcher.close()
    assert seen.is_told
    assert len(seen.found) >= 36


def found_by(life: str) -> dict[tuple[str, str], str]:
    """Return findings of a life that match the table."""
    return {(name, row.place.replace("*", "x")): "" for row in TABLE if life in row.seen for name in row.secrets}


@pytest.mark.parametrize("life", ["local", "aws", "do"])
def test_findings_that_match_the_table_pass(life: str) -> None:
    """All of it."""
    found = found_by(life)
    assert_allowed(found, {name for name, _ in found}, life)


@pytest.mark.parametrize(
    ("secret", "place"),
    [
        ("AWS_SECRET_ACCESS_KEY", "argv ssh"),
        ("WANDB_API_KEY", "machine /opt/kedge/run.json"),
        ("BY_NAME", "laptop state/ledger.db-wal"),
        ("KEDGE_DIGITALOCEAN_DELETE_TOKEN", "machine argv curl"),
        ("KEDGE_DIGITALOCEAN_DELETE_TOKEN", "machine environ train.py"),
        ("a key of the user's", "machine /root/.ssh/id_ed25519"),
        ("?", "user-data"),
    ],
)
def test_a_leak_fails(secret: str, place: str) -> None:
    """A secret in another secret's place, or in one of no secret."""
    found = found_by("do")
    names = {name for name, _ in found}
    with pytest.raises(AssertionError, match="mustn't be"):
        assert_allowed({**found, (secret, place): "example"}, names, "do")


def test_a_place_without_its_secret_fails() -> None:
    """The table would claim too much."""
    found = found_by("local")
    names = {name for name, _ in found}
    del found["WANDB_API_KEY", "laptop state/machines/RUN-m1/secrets.json"]
    with pytest.raises(AssertionError, match="WANDB_API_KEY isn't in laptop state/machines"):
        assert_allowed(found, names, "local")
