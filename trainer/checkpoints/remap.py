"""`python -m trainer remap OLD NEW`: the weights in somebody else's checkpoint, as safetensors under the model's names.

Reads files of torch.save and safetensors, and the trainer's own checkpoints, in one file or in shards. Nothing in OLD
is executed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoints.document import read_document, read_tensors, write_document
from trainer.checkpoints.header import DTYPES
from trainer.checkpoints.loading import load
from trainer.checkpoints.pickled import UnsafeFileError, read_pickled
from trainer.checkpoints.store import SUFFIX
from trainer.checkpoints.tree import WEIGHTS, flatten
from trainer.checkpoints.weights import strip_wrappers
from trainer.distributed import ALONE
from trainer.errors import BadRequestError, DamagedCheckpointError, first_line
from trainer.files import write_atomically

# Where common trainers keep the weights: Lightning and timm, torch's tutorials, ours and DeepSpeed, fairseq and YOLO.
NESTS = ("state_dict", "model_state_dict", "model", "module", "weights", "net", "network")
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Weights, where they were, and what lay beside them that is no tensor."""

    weights: dict[str, torch.Tensor]
    path: tuple[str, ...]
    left_out: tuple[str, ...]


def remap(old: Path, new: Path, *, key: str | None = None) -> str:
    """Convert a checkpoint, and return a line that says what was found.

    Args:
        old: a file of torch.save, or safetensors, or a folder of the trainer's shards.
        new: what is written; ends in .safetensors and doesn't exist yet.
        key: where the weights lie, keys separated by slashes; found by itself where it is None.

    Raises:
        BadRequestError: reading OLD would run code, it holds no weights, or NEW cannot be written.
    """
    _check_new(new)
    found = find_weights(_read(old), key)
    weights = _bare(found.weights, old)
    flat = flatten({WEIGHTS: {name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}})
    try:
        write_atomically(new, lambda stream: write_document(stream, flat))
    except OSError as err:
        raise BadRequestError(
            f"{new} cannot be written", why=first_line(err), fix="choose a folder that exists and has room"
        ) from err
    return _describe(new, found, weights)


def find_weights(content: Any, key: str | None = None) -> Found:
    """Find the state dict in what was read.

    Raises:
        BadRequestError: there is none; the keys that are there are named.
    """
    if key is None:
        return _search(content, ())
    path = tuple(key.split("/"))
    for name in path:
        if not isinstance(content, Mapping) or name not in content:
            raise _no_weights(content, f"there is no {name}")
        content = content[name]
    return _search(content, path)


def _search(content: Any, path: tuple[str, ...]) -> Found:
    if not isinstance(content, Mapping):
        raise _no_weights(content, f"it holds a {type(content).__name__}")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    nest = next((name for name in NESTS if isinstance(content.get(name), Mapping)), None)
    if nest is not None and len(tensors) < len(content):
        return _search(content[nest], (*path, nest))
    if not tensors:
        raise _no_weights(content, "none of the usual keys is there")
    return Found(weights=tensors, path=path, left_out=tuple(str(name) for name in content if str(name) not in tensors))


def _read(path: Path) -> Any:
    try:
        if path.is_dir():
            return load(path, ALONE)
        if not _is_safetensors(path):
            return read_pickled(path)
        try:
            return read_document(path)
        except ValueError:  # another program's, or damaged: then this says so as well
            return read_tensors(path)
    except UnsafeFileError as err:
        raise BadRequestError(
            f"{path} is refused: loading it could run code",
            why=first_line(err),
            fix="where you trust it, load it in Python, keep the weights alone: torch.save(model.state_dict(), FILE)",
        ) from err
    except DamagedCheckpointError as err:
        raise BadRequestError(f"{path} does not load", why=err.why, fix="give another of the checkpoints") from err
    except (OSError, ValueError) as err:
        raise BadRequestError(
            f"{path} does not load",
            why=first_line(err),
            fix="give a file of torch.save or safetensors, or a folder of shards",
        ) from err


def _is_safetensors(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(9)[8:] == b"{"


def _bare(weights: Mapping[str, torch.Tensor], old: Path) -> dict[str, torch.Tensor]:
    unknown = [name for name, tensor in weights.items() if not _is_plain(tensor)]
    if unknown:
        raise BadRequestError(
            f"the weights in {old} cannot be converted",
            why=f"quantized or sparse: {', '.join(unknown[:_SHOWN])}",
            fix="save them dense, in a kind that safetensors has",
        )
    try:
        return strip_wrappers(weights)
    except ValueError as err:
        raise BadRequestError(
            f"the weights in {old} cannot be converted", why=first_line(err), fix="name one of the copies with --key"
        ) from err


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.dtype in DTYPES.values()


def _check_new(new: Path) -> None:
    if new.suffix != SUFFIX or new.exists():
        raise BadRequestError(
            f"{new} cannot be written",
            why="it exists already" if new.exists() else f"what is written is {SUFFIX}",
            fix=f"choose another name that ends in {SUFFIX}",
        )


def _no_weights(content: Any, why: str) -> BadRequestError:
    keys = [str(key) for key in content][:_SHOWN] if isinstance(content, Mapping) else []
    there = f"; there are: {', '.join(keys)}" if keys else ""
    return BadRequestError("no weights were found", why=f"{why}{there}", fix="name where they lie, as --key KEY/KEY")


def _describe(new: Path, found: Found, weights: Mapping[str, torch.Tensor]) -> str:
    parameters = sum(tensor.numel() for tensor in weights.values())
    parts = [f"{new}: {len(weights)} tensors, {parameters:,} values"]
    parts += [f"from {'/'.join(found.path)}"] if found.path else []
    parts += ["wrappers taken off"] if set(weights) != set(found.weights) else []
    parts += [f"left out: {', '.join(found.left_out[:_SHOWN])}"] if found.left_out else []
    return ", ".join(parts)
