"""Reads from a checkpoint's file whether it is whole, and its step, without the library that wrote it.

No code in it is executed: a pickle's instructions are only listed.
"""

from __future__ import annotations

import json
import struct
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

STEP_KEYS = ("iter_num", "global_step", "step", "iteration", "iter", "epoch")
"""The keys under which training scripts save their progress; the first one that is there counts."""

_MOST_BYTES = 16 << 20
"""More than any header of tensors has: anything longer isn't read."""
_MOST_INSTRUCTIONS = 1_000_000
"""The most instructions of a pickle to read, which takes some seconds; 10,000 tensors with optimizer have fewer."""
DCP_SHARD = ".distcp"
_DCP_INDEX = ".metadata"
_OWN_INDEX = "index.json"
_LEGACY_TORCH = b"\x80\x02\x8a\x0a"
"""The start of a file of torch.save before 1.6: several pickles, then raw bytes."""
_CLOSING = {"SETITEMS", "APPENDS", "TUPLE", "DICT", "LIST", "ADDITEMS", "FROZENSET", "POP_MARK", "OBJ", "INST"}
_STRINGS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINSTRING", "BINSTRING", "STRING"}
_WHOLE_NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"}
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_BROKEN = (zipfile.BadZipFile, ValueError, EOFError, struct.error, KeyError, NotImplementedError, RuntimeError)


def is_whole(path: Path) -> bool | None:
    """Whether a file is complete; None if its format doesn't tell.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as stream:
        begins = stream.read(16)
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 1))
        ends = stream.read(1)
    if begins.startswith(b"PK\x03\x04"):
        return _is_zip(path)
    if path.suffix == ".safetensors":
        length = int.from_bytes(begins[:8], "little")
        return _safetensors_size(path, begins) == size if length <= _MOST_BYTES or length > size else None
    if begins[:1] == b"\x80" and begins[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return None if begins.startswith(_LEGACY_TORCH) else ends == b"."
    if path.suffix == ".json":
        return _is_whole_json(path) if size <= _MOST_BYTES else None
    return None


def read_counts(path: Path) -> dict[str, int]:
    """Return the progress that a file contains, most significant first; empty if it has none."""
    try:
        with path.open("rb") as stream:
            begins = stream.read(16)
        if begins.startswith(b"PK\x03\x04"):
            return _pick(_list_numbers(_read_torch(path)))
        if path.suffix == ".safetensors":
            return _pick(_safetensors_header(path, begins).get("__metadata__"))
        if path.stat().st_size > _MOST_BYTES:
            return {}
        if begins[:1] == b"\x80":
            return _pick(_list_numbers(path.read_bytes()))
        return _pick(json.loads(path.read_bytes())) if begins[:1] == b"{" else {}
    except (*_BROKEN, OSError):
        return {}


def list_shards(folder: Path) -> frozenset[str]:
    """Return the names of the files that a sharded checkpoint needs, by its index; empty if that can't be read.

    Read are the indexes of torch.distributed.checkpoint, a pickle with the files' names, and of the bundled trainer.
    """
    try:
        if (folder / _DCP_INDEX).is_file() and (folder / _DCP_INDEX).stat().st_size <= _MOST_BYTES:
            return _list_dcp_shards((folder / _DCP_INDEX).read_bytes())
        if (folder / _OWN_INDEX).is_file() and (folder / _OWN_INDEX).stat().st_size <= _MOST_BYTES:
            return frozenset(str(each["file"]) for each in json.loads((folder / _OWN_INDEX).read_bytes())["shards"])
    except (*_BROKEN, OSError, TypeError, RecursionError):
        pass
    return frozenset()


def _list_dcp_shards(pickled: bytes) -> frozenset[str]:
    import pickletools  # noqa: PLC0415 - for torch's files only

    texts = (argument for _, argument, _ in islice(pickletools.genops(pickled), _MOST_INSTRUCTIONS))
    return frozenset(text for text in texts if isinstance(text, str) and text.endswith(DCP_SHARD) and "/" not in text)


def _is_zip(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return bool(archive.namelist())
    except _BROKEN:
        return False


def _is_whole_json(path: Path) -> bool | None:
    """Distinguish truncated JSON from files that are invalid for other reasons, such as JSON lines, or comments."""
    try:
        json.loads(path.read_bytes())
    except json.JSONDecodeError as err:
        text = err.doc.rstrip()
        if err.msg.startswith("Extra data") or text[:1] not in "{[":
            return None
        is_open = not text.endswith(("}", "]")) or err.pos >= len(text) or err.msg.startswith("Unterminated")
        return False if is_open else None
    except (ValueError, RecursionError):
        return None
    return True


def _safetensors_size(path: Path, begins: bytes) -> int:
    """Return the file's size according to its header; -1 if the header is truncated."""
    try:
        rows = _safetensors_header(path, begins)
        ends = [row["data_offsets"][1] for name, row in rows.items() if name != "__metadata__"]
        return 8 + int.from_bytes(begins[:8], "little") + max(ends, default=0)
    except (*_BROKEN, TypeError, IndexError):
        return -1


def _safetensors_header(path: Path, begins: bytes) -> dict[str, Any]:
    length = int.from_bytes(begins[:8], "little")
    if length > _MOST_BYTES:
        raise ValueError("the header is too long")
    with path.open("rb") as stream:
        stream.seek(8)
        header = json.loads(stream.read(length))
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")  # noqa: TRY004 - one kind of error for all damage
    return header


def _read_torch(path: Path) -> bytes:
    """Return the pickle in a file of torch.save: everything but the tensors' data, uncompressed."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            is_stored = info.compress_type == zipfile.ZIP_STORED
            if info.filename.endswith("data.pkl") and is_stored and info.file_size <= _MOST_BYTES:
                return archive.read(info)
    return b""


def _pick(numbers: object) -> dict[str, int]:
    """Return the numbers under the known keys."""
    found = numbers if isinstance(numbers, dict) else {}
    picked = {}
    for key in STEP_KEYS:
        value = found.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
            picked[key] = value
    return picked


def _list_numbers(pickled: bytes) -> dict[str, int]:
    """List the integers under the known keys of a pickled dictionary, at its top level.

    A dictionary's items are between a MARK and the opcode that closes it; a single item has no MARK.
    """
    import pickletools  # noqa: PLC0415 - for torch's files only

    found: dict[str, int] = {}
    memo: dict[object, str] = {}
    depth, singles, last, before = 0, 0, "", ""
    for code, argument, _ in islice(pickletools.genops(pickled), _MOST_INSTRUCTIONS):
        if code.name in _PUTS or code.name == "MEMOIZE":
            memo[len(memo) if argument is None else argument] = last
            continue
        is_single = before == "EMPTY_DICT" and code.name in _STRINGS | _GETS
        is_last_of_single = code.name == "SETITEM" and singles > 0
        singles += is_single - is_last_of_single
        depth += (code.name == "MARK") + is_single - (code.name in _CLOSING) - is_last_of_single
        if last and depth <= 1 and code.name in _WHOLE_NUMBERS:
            found.setdefault(last, int(str(argument)))
        key = argument if code.name in _STRINGS else memo.get(argument, "") if code.name in _GETS else ""
        last, before = key if key in STEP_KEYS else "", code.name
    return found
