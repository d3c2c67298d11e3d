"""Strangers' checkpoints: the header of a safetensors file, and files of torch.save.

Promises: a file is read, or refused as damaged or as code that isn't run; what was read once
and written again is the same.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

from tests.fuzz.forms import AS_SAFETENSORS
from tests.fuzz.target import Target
from tests.fuzz.trees import ABSOLUTE, guarded
from trainer.base.errors import BadRequestError, visible
from trainer.checkpoints.document import read_document, read_tensors
from trainer.checkpoints.header import read_header
from trainer.checkpoints.pickled import read_pickled
from trainer.checkpoints.remap import remap


def _run(data: bytes, folder: Path) -> None:
    path, converted = folder / "theirs", folder / "ours.safetensors"
    path.write_bytes(data)
    with guarded(folder, "theirs", "ours.safetensors"):
        for read in (read_header, read_document, read_tensors, read_pickled):
            with suppress(ValueError, OSError):
                read(path)
        with suppress(ValueError):
            header = read_header(path)
            assert sum(entry.end - entry.begin for entry in header.entries) <= len(data)
            with suppress(ValueError):
                assert all(0 <= begin <= total for begin, total in header.rows.values())
            with suppress(ValueError):
                assert isinstance(header.checksum, int)
        said = _remap(path, converted)
        assert visible(said).isprintable()
        assert path.read_bytes() == data
        assert not Path(ABSOLUTE).exists()


def _remap(path: Path, converted: Path) -> str:
    said = remap(path, converted)
    before, after = _weights(path), read_document(converted)
    assert isinstance(after, dict)
    assert before is None or len(before) >= len(after.get("model", after))
    return said


def _weights(path: Path) -> dict[str, torch.Tensor] | None:
    try:
        return read_tensors(path)
    except ValueError:
        return None


TARGET = Target(
    name="weights",
    run=_run,
    allowed=(BadRequestError,),
    form=AS_SAFETENSORS,
    tokens=(
        *(
            b'"dtype":"F32"',
            b'"shape":[0,',
            b'"data_offsets":[0,',
            b'"__metadata__":',
            b'"kedge.rows":',
            b'"kedge.state":',
        ),
        *(
            b"\x80\x02",
            b"cos\nsystem\n",
            b"c__builtin__\neval\n",
            b"ctorch._utils\n_rebuild_tensor_v2\n",
            b"R.",
            b"PK\x03\x04",
        ),
    ),
    examples=400,
    modules=("trainer",),
)
