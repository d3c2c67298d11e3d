"""Tries inputs on a target, each in an empty folder."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.fuzz.mutating import mutate
from tests.fuzz.target import BrokenPromiseError, Target

_MEMORY_BYTES = 1 << 30
_FILE_BYTES = 8 << 20


@contextmanager
def working_folder() -> Iterator[Path]:
    """Make a folder, in memory if possible: a run makes thousands each second."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="kedge-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Limit this process to a GiB more than it has, and to files of 8 MiB: no input may need more.

    Bytecode isn't written meanwhile: CPython puts even a file in place that the limit has cut off
    (pydo's largest is longer), and every later import of it would fail.
    """
    writes_bytecode = not sys.dont_write_bytecode
    had = {which: resource.getrlimit(which) for which in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)}
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MEMORY_BYTES, had[resource.RLIMIT_AS][1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, had[resource.RLIMIT_FSIZE][1]))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = not writes_bytecode
        for which, limits in had.items():
            resource.setrlimit(which, limits)


def try_in(target: Target, data: bytes, folder: Path) -> None:
    """Run one input in a folder, and empty the folder again.

    Raises:
        BrokenPromiseError: a promise is broken.
    """
    place = folder / "input"
    place.mkdir()
    try:
        target.try_out(data, place)
    finally:
        remove(place)


def seeded(target: Target, *, count: int, start: int = 0) -> Iterator[bytes]:
    """Yield mutations of the corpus, always the same ones."""
    seeds = target.seeds()
    for number in range(start, start + count):
        random = Random(f"{target.name} {number}")
        yield mutate(seeds[number % len(seeds)], random, form=target.form, tokens=target.tokens, others=seeds)


def remove(place: Path) -> None:
    """Remove a tree, whatever modes an input has given its folders."""
    try:
        shutil.rmtree(place)
    except OSError:
        for folder, _, _ in os.walk(place):
            Path(folder).chmod(stat.S_IRWXU)
        shutil.rmtree(place)


class Findings:
    """Inputs that break a promise, in a folder: one for each line of code that raised."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._target = target
        self._folder = folder

    def look(self, data: bytes, folder: Path) -> None:
        """Try an input, and keep it if it breaks a promise in a new place."""
        try:
            try_in(self._target, data, folder)
        except BrokenPromiseError as err:
            place = self._folder / _name(err)
            if not place.exists():
                place.write_bytes(data)
                told = "".join(traceback.format_exception(err))
                place.with_suffix(".txt").write_text(told, errors="backslashreplace")


def _name(err: BrokenPromiseError) -> str:
    cause = err.__cause__ or err
    frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if "/tests/fuzz/" not in frame.filename]
    last = frames[-1] if frames else traceback.extract_tb(cause.__traceback__)[-1]
    return f"{type(cause).__name__}-{Path(last.filename).stem}-{last.lineno}"
