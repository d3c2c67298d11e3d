"""Headers of tar files from outside: what their numbers may be."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from trainer.checks._tar import DamagedTarError, list_members


def write_header(path: Path, size: bytes) -> Path:
    """Write a tar file of one member, whose header states this size; its checksum is right."""
    header = bytearray(tarfile.TarInfo("a.jpg").tobuf(tarfile.USTAR_FORMAT))
    header[124:136], header[148:156] = size.ljust(12, b"\0"), b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path.write_bytes(bytes(header) + bytes(2048))
    return path


@pytest.mark.parametrize("size", [b"-0000001000", b"-1", b"+1000", b"1_000", b"0x10", b"9"])
def test_sizes_that_are_no_octal_digits_are_damage(tmp_path: Path, size: bytes) -> None:
    """A negative one would lead back to the same header, without end."""
    with write_header(tmp_path / "a.tar", size).open("rb") as stream:
        members = list_members(stream)
        with pytest.raises(DamagedTarError, match="no header of a tar file at byte 0"):
            next(members)


@pytest.mark.parametrize("size", [b"00000001000", b"1000", b"   1000 ", b"\x80" + bytes(9) + b"\x02\0"])
def test_sizes_are_octal_padded_or_binary(tmp_path: Path, size: bytes) -> None:
    """512 bytes each: as ustar and older programs write it, and GNU's form for large files."""
    with write_header(tmp_path / "a.tar", size).open("rb") as stream:
        assert [(member.name, member.size) for member in list_members(stream)] == [("a.jpg", 512)]
