"""Files that are written past the page cache: each byte, however the writes are cut."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from trainer.checkpoints.direct import CHUNK_BYTES, PAGE_BYTES, DirectStream, open_direct


def aligned(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Random bytes that begin at a page, as a staged state does."""
    memory = np.random.default_rng(0).integers(0, 256, size + PAGE_BYTES, dtype=np.uint8)
    start = -memory.ctypes.data % PAGE_BYTES
    return memory[start : start + size]


@pytest.mark.parametrize(
    "sizes",
    [
        (CHUNK_BYTES,),
        (PAGE_BYTES, CHUNK_BYTES + PAGE_BYTES),
        (PAGE_BYTES, CHUNK_BYTES + 5, 7),
        (5, CHUNK_BYTES, 3),
        (CHUNK_BYTES - 1, 2, 2 * CHUNK_BYTES + 1),
        (),
    ],
    ids=str,
)
@pytest.mark.parametrize("offset", [0, 1])
def test_every_byte_is_written_in_order(sizes: tuple[int, ...], offset: int, tmp_path: Path) -> None:
    """Whole pages of aligned memory without a copy, the rest through a buffer."""
    content, path = aligned(sum(sizes) + 1), tmp_path / "file"
    begin = offset
    with open_direct(path) as stream:
        for size in sizes:
            assert stream.write(content[begin : begin + size].data) == size
            begin += size
    assert path.read_bytes() == content[offset:begin].tobytes()


def test_large_aligned_buffer_is_written_at_once(tmp_path: Path) -> None:
    """On the disk before the stream is flushed, all but the last part of a page."""
    path = tmp_path / "file"
    with open_direct(path) as stream:
        stream.write(aligned(PAGE_BYTES).data)
        assert path.stat().st_size == 0
        stream.write(aligned(CHUNK_BYTES + PAGE_BYTES + 1).data)
        assert path.stat().st_size == CHUNK_BYTES + 2 * PAGE_BYTES
    assert path.stat().st_size == CHUNK_BYTES + 2 * PAGE_BYTES + 1


def test_new_file_replaces_the_old_content_and_is_not_executable(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"longer than the new content")
    with open_direct(path) as stream:
        stream.write(b"new")
        assert os.fstat(stream.fileno()).st_ino == path.stat().st_ino
    assert path.read_bytes() == b"new"
    path.unlink()
    mask = os.umask(0)
    try:
        open_direct(path).__enter__().close()
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666


def test_closed_stream_stays_closed(tmp_path: Path) -> None:
    """Its descriptor isn't closed a second time: it may be another file's then."""
    stream = DirectStream(tmp_path / "file")
    descriptor = stream.fileno()
    assert stream.writable()
    stream.write(b"rest")
    stream.close()
    with (tmp_path / "other").open("wb") as other:
        stream.close()
        assert other.fileno() == descriptor
        other.write(b"here")
    assert (tmp_path / "file").read_bytes() == b"rest"


def test_file_system_with_stricter_rules_is_written_to_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses the first write with EINVAL; another error is raised."""
    write, refusals = os.write, [errno.EINVAL]

    def strict(descriptor: int, data: memoryview) -> int:
        if refusals:
            raise OSError(refusals.pop(), "refused")
        return write(descriptor, data[:1_000_000])  # and writes less than it was given

    monkeypatch.setattr(os, "write", strict)
    content = aligned(CHUNK_BYTES + 3)
    with open_direct(tmp_path / "file") as stream:
        stream.write(content.data)
    assert (tmp_path / "file").read_bytes() == content.tobytes()
    refusals.append(errno.ENOSPC)
    with pytest.raises(OSError, match="refused"), open_direct(tmp_path / "full") as stream:
        stream.write(content.data)
