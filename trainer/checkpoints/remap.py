"""`python -m trainer remap OLD NEW`: converts another trainer's checkpoint to safetensors under the model's names.

Reads files of torch.save and safetensors, and the trainer's own checkpoints, single or sharded. Runs no code in OLD.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainer.base.errors import BadRequestError, DamagedCheckpointError, first_line
from trainer.base.files import write_atomically
from trainer.checkpoints.document import read_document, read_tensors, write_document
from trainer.checkpoints.header import DTYPES
from trainer.checkpoints.loading import load
from trainer.checkpoints.pickled import UnsafeFileError, read_pickled
from trainer.checkpoints.store import SUFFIX
from trainer.checkpoints.tree import WEIGHTS, flatten
from trainer.checkpoints.weights import strip_wrappers
from trainer.group.distributed import ALONE

# The keys under which common trainers save weights: Lightning and timm, torch's tutorials, kedge and torchvision,
# DeepSpeed, fairseq, BasicSR, GANs, DINO. The first one that holds weights is taken; averages of weights come last.
NESTS = (
    *("state_dict", "model_state_dict", "model_state", "model", "module", "weights", "net", "network", "params"),
    *("generator", "student", "teacher"),
    *("average", "ema", "model_ema", "state_dict_ema", "ema_state_dict", "ema_state", "params_ema"),
)
_SHOWN = 8
_DEPTH = 8
"""Dicts may be nested so deep: a stranger's may contain itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWeights:
    """Weights, the keys that lead to them, and the names of the entries beside them that aren't tensors.

    `others` are the usual keys under which there are weights as well.
    """

    weights: dict[str, torch.Tensor]
    path: tuple[str, ...]
    left_out: tuple[str, ...]
    others: tuple[str, ...] = ()


def remap(old: Path, new: Path, *, key: str | None = None) -> str:
    """Convert a checkpoint, and return a line that describes the result.

    Args:
        old: a file of torch.save, or safetensors, or a folder of the trainer's shards.
        new: the file to write; ends in .safetensors and doesn't exist yet.
        key: where the weights are, keys separated by slashes; None searches the usual places.

    Raises:
        BadRequestError: reading OLD would run code, it holds no weights, or NEW cannot be written.
    """
    _check_new(new)
    found = find_weights(read_content(old), key)
    weights = _bare(found.weights, old)
    flat = flatten({WEIGHTS: {name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}})
    try:
        write_atomically(new, lambda stream: write_document(stream, flat))
    except OSError as err:
        raise BadRequestError(
            f"{new} cannot be written", why=first_line(err), fix="choose a folder that exists and has room"
        ) from err
    return _describe(new, found, weights)


def find_weights(content: Any, key: str | None = None) -> ForeignWeights:
    """Find the state dict in a file's content.

    Raises:
        BadRequestError: there is none; the message lists the keys.
    """
    if key is None:
        return _search(content, ())
    path = tuple(key.split("/"))
    for name in path:
        if not isinstance(content, Mapping) or name not in content:
            raise _no_weights(content, f"there is no {name}")
        content = content[name]
    return _search(content, path)


def _search(content: Any, path: tuple[str, ...]) -> ForeignWeights:
    if not isinstance(content, Mapping):
        raise _no_weights(content, f"it holds a {type(content).__name__}")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    nests = [name for name in NESTS if _holds_weights(content.get(name), _DEPTH)]
    if nests:
        found = _search(content[nests[0]], (*path, nests[0]))
        return replace(found, others=tuple("/".join((*path, name)) for name in nests[1:]) + found.others)
    if not tensors:
        raise _no_weights(content, "none of the usual keys is there")
    return ForeignWeights(
        weights=tensors, path=path, left_out=tuple(str(name) for name in content if str(name) not in tensors)
    )


def _holds_weights(content: Any, depth: int) -> bool:
    if not isinstance(content, Mapping) or not depth:
        return False
    is_tensor = any(isinstance(value, torch.Tensor) for value in content.values())
    return is_tensor or any(_holds_weights(content.get(name), depth - 1) for name in NESTS)


def read_content(path: Path) -> Any:
    """Read a file of torch.save or safetensors, or a folder of shards; no code in it is run.

    Raises:
        BadRequestError: it does not load, or reading it would run code.
    """
    try:
        if path.is_dir():
            return load(path, ALONE)
        if not _is_safetensors(path):
            return read_pickled(path)
        try:
            return read_document(path)
        except ValueError:  # another program's file, or a damaged one, which fails below as well
            return read_tensors(path)
    except UnsafeFileError as err:
        raise BadRequestError(
            f"{path} was not loaded: that could run code",
            why=first_line(err),
            fix="if you trust it, load it in Python and save only the weights: torch.save(model.state_dict(), FILE)",
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
            fix="save them dense, in a dtype that safetensors has",
        )
    try:
        return strip_wrappers(weights)
    except ValueError as err:
        raise BadRequestError(
            f"the weights in {old} cannot be converted", why=first_line(err), fix="choose one of the copies with --key"
        ) from err


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.dtype in DTYPES.values()


def _check_new(new: Path) -> None:
    if new.suffix != SUFFIX or new.exists():
        raise BadRequestError(
            f"{new} cannot be written",
            why="it already exists" if new.exists() else f"the output format is {SUFFIX}",
            fix=f"choose another name that ends in {SUFFIX}",
        )


def _no_weights(content: Any, why: str) -> BadRequestError:
    keys = [str(key) for key in content][:_SHOWN] if isinstance(content, Mapping) else []
    there = f"; its keys are: {', '.join(keys)}" if keys else ""
    return BadRequestError("no weights were found", why=f"{why}{there}", fix="say where they are with --key KEY/KEY")


def _describe(new: Path, found: ForeignWeights, weights: Mapping[str, torch.Tensor]) -> str:
    parameters = sum(tensor.numel() for tensor in weights.values())
    parts = [f"{new}: {len(weights)} tensors, {parameters:,} values"]
    others = f" (also there, with --key: {', '.join(found.others)})" if found.others else ""
    parts += [f"from {'/'.join(found.path)}{others}"] if found.path else []
    parts += ["wrappers removed"] if set(weights) != set(found.weights) else []
    parts += [f"left out: {', '.join(found.left_out[:_SHOWN])}"] if found.left_out else []
    return ", ".join(parts)
