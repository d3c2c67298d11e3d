"""Writes an export into a folder, which is never replaced unasked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from orchestrator.adapters.export.code import CODE, write_code
from orchestrator.adapters.export.model import PLAIN, Export, ExportFile
from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.sync.code.tree import CodeTree
from orchestrator.core.errors import BadRequestError

_NAMES = ".kedge-export"
"""The list of the files that an export wrote."""
_VARIABLE = re.compile(rb"^[ \t]*(?:export[ \t]+)?([A-Z][A-Z0-9_]*)=", re.MULTILINE)


def require_free(folder: Path, *, force: bool) -> None:
    """Refuse a folder with content.

    Raises:
        BadRequestError: it isn't empty, or not a folder.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise BadRequestError(f"{folder} is not a folder", fix="name another one with --output")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise BadRequestError(
            f"{folder} exists, and isn't empty",
            why="an export never replaces files unasked",
            fix="write over it with --force, or name another folder with --output",
        )


def write_export(export: Export, code: CodeTree | None, folder: Path) -> None:
    """Write all files; those that an earlier export wrote are replaced or removed, others stay.

    A form that the user may have filled in stays, too, if it has all variables; otherwise it becomes `NAME.old`.

    Raises:
        KedgeError: one of them can't be written, or the code changes meanwhile.
    """
    names = [*(file.path for file in export.files), *([] if code is None else [CODE])]
    for path in _written_earlier(folder):
        if path.name not in names:
            path.unlink(missing_ok=True)
    # First, so that the next export knows of files that this one didn't come to write.
    write_atomically(folder / _NAMES, "".join(f"{name}\n" for name in names).encode(), mode=PLAIN)
    for file in export.files:
        if not (file.is_form and _keep_form(file, folder)):
            write_atomically(folder / file.path, file.content, mode=file.mode)
    if code is not None:
        write_code(code, folder / CODE)


def _keep_form(form: ExportFile, folder: Path) -> bool:
    """Tell whether the folder's form has all variables; otherwise set it aside."""
    path = folder / form.path
    if not path.is_file():
        return False
    has_all = set(_VARIABLE.findall(form.content)) <= set(_VARIABLE.findall(path.read_bytes()))
    if not has_all:
        path.replace(path.with_name(f"{path.name}.old"))
    return has_all


def _written_earlier(folder: Path) -> Iterator[Path]:
    """Yield the files that the last export into this folder wrote, as far as its list names files of the folder."""
    try:
        names = (folder / _NAMES).read_text(errors="replace").splitlines()
    except OSError:
        return
    for name in names:
        path = folder / name
        if path.parent == folder and path.name == name and path.is_file():
            yield path
