"""Uploads compiled kernels to the store, and restores them on the run's next machine.

The caches of MIOpen, Comgr, Inductor, Triton and TunableOp for one architecture and one torch are packed into one
object, `cache/<architecture>-<torch>.sealed`. They only save minutes: failures are logged, and the run continues. They
contain code, and are therefore sealed (seal.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from ..base.errors import AgentError
from ..base.files import read_json, write_json
from ..base.layout import NAME, Layout
from ..base.parse import clean_relative
from ..base.runlog import RunLog
from ..base.tar_stream import DAMAGED, Member
from ..base.wire import MachineConfig
from ..python.torch_env import read_torch
from ..s3.seal import BYTES, NoSealError, open_sealed, read_seal, sealed
from ..s3.store import ObjectStore, open_results
from .environment import cache_folder

LIMIT_BYTES = 512 << 20
"""Larger caches aren't kept, because results wait while they are packed and uploaded, and a spot notice leaves little
time."""

_CHUNK_BYTES = 1 << 20

Stamps = dict[str, list[int]]


def upload_caches(layout: Layout, machine: MachineConfig) -> bool:
    """Upload the caches, if they have changed since the last upload; return whether they were uploaded.

    Raises:
        OSError: the store or a file can't be used.
    """
    try:
        seal = read_seal(machine)
    except NoSealError:
        return False
    folder = _folder(layout)
    stamps = _stamps(folder) if folder else {}
    stamp = {"folder": folder.name if folder else "", "stamps": stamps}
    size = sum(size for size, _ in stamps.values())
    store = open_results(machine)
    if folder is None or store is None or not 0 < size <= LIMIT_BYTES or read_json(layout.note("caches")) == stamp:
        return False
    with tempfile.TemporaryFile(dir=layout.root) as packed:
        _pack(folder, stamps, packed)
        packed.seek(0)
        store.put(_key(folder), sealed(seal, _key(folder), packed))
    write_json(layout.note("caches"), stamp)
    return True


def restore_caches(layout: Layout, machine: MachineConfig, log: RunLog) -> None:
    """Restore the caches of an earlier machine of the run, if this one has none yet."""
    folder = _folder(layout)
    if folder is None or folder.exists():
        return
    try:
        store = open_results(machine)
        count = _fetch(layout, store, folder, read_seal(machine)) if store else 0
    except (OSError, AgentError, *DAMAGED) as err:
        log.remark(f"compiled kernels can't be restored: {type(err).__name__}: {err}".replace("\n", ";"))
        return
    if count:
        log.remark(f"restored {count} files of compiled kernels for {folder.name}")


def _folder(layout: Layout) -> Path | None:
    """Return the caches' folder; None if architecture or torch is unknown."""
    torch = read_torch(layout)
    if torch is None or not torch.archs or not NAME.fullmatch(torch.key):
        return None
    return cache_folder(layout, torch)


def _key(folder: Path) -> str:
    return f"cache/{folder.name}.sealed"


def _stamps(folder: Path) -> Stamps:
    """Return size and time of each regular file; links and the locks of running compilers are left out."""
    found: Stamps = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and not name.endswith((".lock", ".tmp")):
                    found[path.relative_to(folder).as_posix()] = [status.st_size, status.st_mtime_ns]
    return found


def _pack(folder: Path, paths: Iterable[str], packed: IO[bytes]) -> None:
    # A fast compression level, because most of it is already compressed.
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for path in sorted(paths):
            # A running compiler may have replaced it since.
            with contextlib.suppress(FileNotFoundError):
                tar.add(folder / path, arcname=path, recursive=False)


def _fetch(layout: Layout, store: ObjectStore, folder: Path, seal: bytes) -> int:
    """Download and unpack the caches atomically; return the number of files, 0 if the store has none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=layout.root) as packed, tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        try:
            for chunk in store.get(_key(folder)):
                packed.write(chunk)
                _require_small(packed.tell() - BYTES)
        except FileNotFoundError:
            return 0
        open_sealed(seal, _key(folder), packed)
        count = _unpack(packed, Path(aside) / "unpacked")
        (Path(aside) / "unpacked").replace(folder)
    return count


def _unpack(packed: IO[bytes], folder: Path) -> int:
    folder.mkdir()
    count = 0
    size = 0
    with tarfile.open(fileobj=packed, mode="r:gz", tarinfo=Member) as tar:
        for member in tar:
            size += member.size
            _require_small(size)
            content = tar.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            path = folder / clean_relative(member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream:
                shutil.copyfileobj(content, stream, _CHUNK_BYTES)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)
            os.utime(path, (member.mtime, member.mtime))
            count += 1
    return count


def _require_small(size: int) -> None:
    """Refuse an object that is larger than kedge makes them, because it could fill the disk."""
    if size > LIMIT_BYTES:
        raise AgentError(f"they are more than {LIMIT_BYTES >> 20} MiB")
