"""Other people's archives are unpacked into the target, and nowhere else."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from tests.agent.sources.machine import Machine, files_below, zipped
from tests.agent.sources.web import Serve, Site


def tarred(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    return made


@pytest.fixture
def site(serve: Serve) -> Site:
    return serve(Site())


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_is_unpacked_with_its_links_and_programs(machine: Machine, site: Site, mode: str) -> None:
    """The target is a folder with its content; the archive itself isn't kept."""
    site.files["/set.tar"] = tarred(
        (member("./set", tarfile.DIRTYPE), b""),
        (member("set/link", tarfile.SYMTYPE, link="../run.sh"), b""),
        (member("run.sh", mode=0o4755), b"#!/bin/sh"),
        (member("set/twin", tarfile.LNKTYPE, link="run.sh"), b""),
        mode=mode,
    )
    folder = machine.fetch(f"{site.url}/set.tar#unpack")
    assert files_below(folder) == dict.fromkeys(["run.sh", "set/link", "set/twin"], b"#!/bin/sh")
    assert (folder / "set/link").readlink() == Path("../run.sh")
    assert stat.S_IMODE((folder / "run.sh").stat().st_mode) == 0o755


HOSTILE = {
    "up": tarred((member("../../evil"), b"x")),
    "absolute": tarred((member("/tmp/kedge-evil"), b"x")),
    "link out": tarred((member("out", tarfile.SYMTYPE, link="../.."), b"")),
    "absolute link": tarred((member("out", tarfile.SYMTYPE, link="/etc"), b"")),
    "through a link": tarred((member("out", tarfile.SYMTYPE, link="../.."), b""), (member("out/evil"), b"x")),
    "links that lead out together": tarred(
        (member("d/e", tarfile.DIRTYPE), b""),
        (member("d/e/top", tarfile.SYMTYPE, link="../.."), b""),
        (member("out", tarfile.SYMTYPE, link="d/e/top/.."), b""),
    ),
    "twin of what is outside": tarred((member("twin", tarfile.LNKTYPE, link="../../../machine.json"), b"")),
    "device": tarred((member("null", tarfile.CHRTYPE), b"")),
    "zip up": zipped({"../../evil": b"x"}),
    "no archive": b"<html>not found</html>",
    "cut": tarred((member("a"), os.urandom(100_000)))[:50_000],
}


@pytest.mark.parametrize("archive", HOSTILE.values(), ids=HOSTILE)
def test_an_archive_with_paths_outside_of_the_target_is_refused(machine: Machine, site: Site, archive: bytes) -> None:
    """None of it is put in place, and no file is where the archive pointed."""
    (machine.layout.root / "machine.json").write_text("{}")
    site.files["/set"] = archive
    error = machine.refuse(f"{site.url}/set#unpack")
    assert "archive" in str(error) or "leaves the target" in str(error)
    assert not (machine.layout.data / "data/set").exists()
    inside = machine.layout.data / ".fetching"
    assert all(path.is_relative_to(inside) for path in machine.layout.root.parent.rglob("*evil*"))
