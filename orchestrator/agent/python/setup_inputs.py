"""Finds what `setup` depends on: files of the code, and variables."""

from __future__ import annotations

import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..code.releases import originals, read_record

_USUAL = (
    *("requirements*.txt", "requirements*.in", "requirements/*.txt", "requirements/*.in", "constraints*.txt"),
    *("pyproject.toml", "setup.py", "setup.cfg", "*.lock", "pylock*.toml", "conda-lock.yml", "pixi.toml", "Pipfile"),
    *("environment*.yml", "environment*.yaml", ".python-version"),
)
"""What counts without `setup_inputs`, besides the files that `setup` names."""
_TEXTS = (".txt", ".in", ".sh", ".bash", ".yml", ".yaml", "Makefile")
"""Files that name others: scripts, and lists of requirements (`-r base.txt`)."""
_TEXT_BYTES = 1 << 20
_WORD = re.compile(r"[^\s;&|<>()`\"'=$,\[\]{}]+")
_MODULE = re.compile(r"\s-m\s+([A-Za-z_][\w.]*)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Installers and compilers read these, although no text names them.
_READ_PREFIXES = ("PIP_", "UV_", "CONDA_", "MAMBA_", "PIXI_", "POETRY_", "PDM_", "SETUPTOOLS_", "CMAKE_", "HF_H")
_READ = frozenset(
    {
        *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "MAX_JOBS", "CUDACXX", "CUDA_HOME"),
        *("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "ROCM_HOME"),
        *("ROCM_PATH", "FORCE_CUDA", "TORCH_HOME", "XDG_CACHE_HOME", "HOME", "PATH", "PYTHONPATH", "PYTHONUSERBASE"),
        *("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "RUSTFLAGS", "CARGO_HOME"),
    }
)
# Another token gives access to the same packages.
_CREDENTIALS = ("_TOKEN", "_KEY", "_SECRET", "_PASSWORD")


def find_inputs(release: Path, setup: str, patterns: Sequence[str] = ()) -> tuple[str, ...]:
    """List the files of the code that `setup` depends on, as they were sent: files that it writes don't count.

    Args:
        release: the code's folder.
        setup: the script.
        patterns: paths and globs relative to the folder, in place of the usual files and of those that `setup` names.
    """
    files = _Sent(release)
    found = set(files.match(patterns or _USUAL))
    if not patterns:
        found.update(files.named_in(setup))
    waiting = list(found)
    while waiting:
        path = waiting.pop()
        if path.endswith(_TEXTS):
            more = set(files.named_in(files.read(path))) - found
            found |= more
            waiting += more
    return tuple(sorted(found))


def find_unmatched(release: Path, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return those of `setup_inputs` that no file of the code matches, which are probably mistyped."""
    files = _Sent(release)
    return tuple(pattern for pattern in patterns if not any(files.match([pattern])))


def find_variables(release: Path, setup: str, inputs: Iterable[str], given: Iterable[str]) -> tuple[str, ...]:
    """Return those of the given variables that `setup` uses: it, its inputs, installers or compilers name them."""
    find = originals(release)
    words = set(_NAME.findall(setup))
    for path in inputs:
        if not path.endswith(".lock"):
            words.update(_NAME.findall(read_text(find(path))))
    return tuple(sorted(name for name in given if name in words or _is_read(name)))


def texts_of(release: Path, inputs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield path and content of the scripts and lists of requirements among the inputs."""
    find = originals(release)
    return ((path, read_text(find(path))) for path in inputs if path.endswith(_TEXTS))


def read_text(path: str) -> str:
    """Return the beginning of a file; empty if it can't be read."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - `originals` has strings
            return stream.read(_TEXT_BYTES).decode(errors="replace")
    except OSError:
        return ""


class _Sent:
    """The files of a release as it was received."""

    def __init__(self, release: Path) -> None:
        self._find: Callable[[str], str] = originals(release)
        self._paths: set[str] = {*read_record(release).get("files", {}), *_links(release)}
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)
        for path in self._paths:
            self._by_name[path.rpartition("/")[2]].append(path)

    def read(self, path: str) -> str:
        return read_text(self._find(path))

    def match(self, patterns: Iterable[str]) -> Iterator[str]:
        """Yield files that a glob matches, and files below a folder that one matches."""
        glob = re.compile("|".join(f"(?:{_translate(pattern)})" for pattern in patterns))
        return (path for path in self._paths if glob.fullmatch(path))

    def named_in(self, text: str) -> Iterator[str]:
        """Yield files that a text names: by path, by glob, or as a module after `-m`.

        A path need not begin at the top, because the script may have changed its folder.
        """
        words = set(_WORD.findall(text))
        for module in _MODULE.findall(text):
            path = module.replace(".", "/")
            words |= {f"{path}.py", f"{path}/__main__.py"}
        for word in words:
            path = posixpath.normpath(word.removeprefix("file:"))
            if "*" in path and path.strip("*./"):
                yield from self.match([path])
            elif "." in path or "/" in path:
                names = self._by_name.get(path.rpartition("/")[2], ())
                yield from (name for name in names if f"/{name}".endswith(f"/{path}"))
            elif path in self._paths:
                yield path


def _links(release: Path) -> Iterator[str]:
    """Yield the code's own links to files, which records don't have; only those at the top."""
    for path in release.iterdir():
        if path.is_symlink() and not path.readlink().is_absolute() and path.is_file():
            yield path.name


def _translate(pattern: str) -> str:
    """Return a regular expression for a glob, in which `*` matches within a folder's name and `**` any folders."""
    marks: Mapping[str, str] = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    path = os.path.normpath(pattern)
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", "**" if path == "." else path)
    return "".join(marks.get(piece, re.escape(piece)) for piece in pieces) + "(?:/.*)?"


def _is_read(name: str) -> bool:
    return name in _READ or (name.startswith(_READ_PREFIXES) and not name.endswith(_CREDENTIALS))
