"""`--init`: the main process reads the weights and checks them; each process loads what it holds of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.base.errors import BadRequestError, first_line
from trainer.base.hub import HubAccess
from trainer.base.start_from import StartFrom
from trainer.checkpoints.document import read_tensors
from trainer.checkpoints.remap import find_weights, read_content
from trainer.checkpoints.weights import unchanged
from trainer.group.distributed import ProcessGroup
from trainer.start.carried import Target
from trainer.start.fit import Fit, fit_weights
from trainer.start.hub import INDEX_SUFFIX, PREFIX, Downloaded, download, list_shards
from trainer.step.learner import Learner

_USUAL_INDEX = f"model.safetensors{INDEX_SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialWeights:
    """Weights that fit the model, by its names; only the main process holds them. `report` says what fits."""

    names: tuple[str, ...]
    origin: str
    report: tuple[str, ...]
    held: Mapping[str, torch.Tensor]

    def load_into(self, learner: Learner, group: ProcessGroup) -> None:
        """Load them into a learner's model and its average, one tensor after another; collective."""
        models = [learner.model, *([learner.average.model] if learner.average else [])]
        wanted = learner.model.state_dict()
        fit = learner.sharding.shard_like if learner.sharding else unchanged
        fitted = {}
        for name in self.names:
            weight = group.broadcast_from_main(lambda name=name: self.held[name])  # type: ignore[misc]
            fitted[name] = fit(weight, wanted[name])
        for model in models:
            model.load_state_dict(fitted, strict=False)


def find_initial_weights(
    start: StartFrom, target: Target, group: ProcessGroup, access: HubAccess, *, needed: Sequence[str] | None = None
) -> InitialWeights | None:
    """Read and check the weights of `--init`, before anything is changed; None without it. Collective.

    All weights have to be there that a checkpoint has, or those that are `needed`.

    Raises:
        BadRequestError: they can't be read, or don't fit this model.
    """
    if start.init is None:
        return None
    reference = start.init
    held: dict[str, torch.Tensor] = {}

    def read() -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        weights, origin = _read(reference, start.key, access)
        fit = fit_weights(weights, target.model.state_dict(), needed=target.names if needed is None else needed)
        _check(fit, reference, strict=start.strict)
        held.update(fit.fitting)
        return tuple(fit.fitting), origin, _report(fit, origin)

    names, origin, report = group.broadcast_from_main(read)
    return InitialWeights(names=names, origin=origin, report=report, held=held)


def _read(reference: str, key: str | None, access: HubAccess) -> tuple[dict[str, torch.Tensor], str]:
    if reference.startswith(PREFIX):
        found = download(reference, access)
    else:
        path = Path(reference)
        found = Downloaded(files=_list_files(path), origin=path.name)
    weights: dict[str, torch.Tensor] = {}
    for file in found.files:
        weights.update(_read_shard(file) if len(found.files) > 1 else find_weights(read_content(file), key).weights)
    return weights, found.origin


def _list_files(path: Path) -> tuple[Path, ...]:
    """List the files of a local place: itself, or the shards that an index of safetensors names."""
    index = path / _USUAL_INDEX if path.is_dir() else path
    if not index.name.endswith(INDEX_SUFFIX) or not index.is_file():
        return (path,)
    try:
        return tuple(index.with_name(name) for name in list_shards(index))
    except (OSError, ValueError) as err:
        raise BadRequestError(f"{index} does not load", why=first_line(err), fix="give another file") from err


def _read_shard(path: Path) -> dict[str, torch.Tensor]:
    try:
        return read_tensors(path)
    except (OSError, ValueError) as err:
        raise BadRequestError(
            f"{path} does not load", why=first_line(err), fix="copy all files of the index, or give one file"
        ) from err


def _check(fit: Fit, reference: str, *, strict: bool) -> None:
    if fit.is_whole or (fit.fitting and not strict):
        return
    raise BadRequestError(
        f"--init {reference}: the weights don't fit this model",
        why=fit.describe() if fit.fitting else f"none of them fits: {fit.describe()}",
        fix="load what fits with --loosely, or say where the model's weights are with --key KEY/KEY",
    )


def _report(fit: Fit, origin: str) -> tuple[str, ...]:
    line = f"started from {origin}: {len(fit.fitting)} tensors loaded"
    return (line,) if fit.is_whole else (f"{line}, not the others: {fit.describe()}",)
