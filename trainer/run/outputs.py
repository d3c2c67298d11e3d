"""Writes a finished run's outputs: curves, the best weights as safetensors and ONNX, a model card; publishes them."""

import platform
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from trainer.base.config import Settings
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError
from trainer.base.files import write_atomically
from trainer.base.hub import check_hub
from trainer.base.setting import flatten_settings
from trainer.checkpoints.document import write_document
from trainer.checkpoints.loading import all_rows, load_best, load_newest
from trainer.checkpoints.tree import WEIGHTS, State, flatten
from trainer.checkpoints.weights import load_weights, match_weights
from trainer.group.distributed import ALONE
from trainer.report.hardware import device_name
from trainer.report.model_card import CardFacts, render_card
from trainer.report.publish.hub import push
from trainer.report.publish.kaggle import check_dataset, write_dataset
from trainer.report.publish.kaggle_upload import check_upload, upload_dataset
from trainer.report.status import read_metrics
from trainer.report.trackers import check_trackers
from trainer.run.run import Run

_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
# In the order of the model card. The ones that were written are published.
_FILES = {
    "model.safetensors": "the weights, under the model's own names",
    "model.onnx": "the model with its weights, compared with torch by onnxruntime",
    "curves.png": "loss, metrics, learning rate, throughput and memory over training",
    "metrics.jsonl": "the same figures, one JSON object a line",
}
_CARD = "README.md"


def check_outputs(settings: Settings, contract: RunContract) -> None:
    """Check before the run starts that the requested outputs can be made.

    Raises:
        BadRequestError: a package or a token is missing, or a name is invalid.
    """
    check_trackers(settings.track)
    if settings.publish.hub_repo:
        check_hub(settings.publish.hub_repo, contract.hub)
    if settings.publish.hub_during:
        _check_push_during(settings)
    if settings.publish.kaggle_dataset:
        check_dataset(settings.publish.kaggle_dataset)
    if settings.publish.kaggle_upload:
        check_upload(settings.publish.kaggle_dataset, contract.kaggle)


def _check_push_during(settings: Settings) -> None:
    if not settings.publish.hub_repo:
        raise BadRequestError(
            "publish.hub_during=true has no repository to push to",
            why="publish.hub_repo is not set",
            fix="add --set publish.hub_repo=OWNER/NAME",
        )
    if settings.compute.fully_shard:
        raise BadRequestError(
            "publish.hub_during=true does not work with compute.fully_shard",
            why="the best weights are shards, on several machines, until the end of the run",
            fix="leave publish.hub_during off: they are pushed at the end",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedWeights:
    """The weights for the outputs: full tensors on the CPU, with their validation metrics.

    `epoch` is the one after which they were the best, 0 if they are the last weights instead.
    """

    weights: State
    epoch: int
    metrics: dict[str, float]


def select_weights(run: Run) -> SelectedWeights | None:
    """Return the best weights of a trained run, else the last ones, on the main process. Collective."""
    is_sharded, say = run.learner.sharding is not None, run.console.say
    if not is_sharded and not run.group.is_main:
        return None
    readers = run.group if is_sharded else ALONE
    select = all_rows if run.group.is_main else _no_rows
    best = load_best(run.checkpoints.store, readers, say, select=select)
    if best:
        selected = SelectedWeights(weights=best["model"], epoch=best["epoch"], metrics=best["metrics"])
    else:
        say("the last weights are exported instead of the best")
        last = load_newest(run.checkpoints.store, readers, say, select=select) if is_sharded else run.learner.state()
        selected = SelectedWeights(weights=last["model"] if last else {}, epoch=0, metrics=run.progress.metrics)
    return selected if run.group.is_main else None


def write_outputs(run: Run, selected: SelectedWeights, contract: RunContract, *, summary: str) -> None:
    """Write a finished run's outputs, and publish them; report each output that can't be made here.

    Args:
        run: the run, which is complete.
        selected: the weights to export.
        contract: where the outputs go.
        summary: the result in a few words.

    Raises:
        ExportError: the exported model's outputs differ from the trained model's.
        PublishError: the Hub or Kaggle refuses; all files are written.
    """
    folder = contract.output_dir
    if run.settings.curves and _has(run, "curves.png", "matplotlib"):
        _draw_curves(run, contract, folder / "curves.png", summary)
    _write_weights(run, selected, contract, folder / "model.safetensors")
    inputs = run.workload.export_inputs
    if run.settings.onnx and inputs is not None and _has(run, "model.onnx", *_ONNX_PACKAGES):
        _export(run, selected, inputs, contract, folder / "model.onnx")
    card = render_card(_card_facts(run, selected, _list_files(folder)))
    write_atomically(folder / _CARD, lambda stream: stream.write(card.encode()), durable=False)
    _publish(run, contract, summary)


def _no_rows(_total: int) -> range:
    return range(0)


def _draw_curves(run: Run, contract: RunContract, path: Path, summary: str) -> None:
    # Imported here, because it takes half a second and 50 MiB that training doesn't need.
    from trainer.report.curves import draw_curves  # noqa: PLC0415

    rows = read_metrics(path.with_name("metrics.jsonl"))
    draw_curves(rows, path, title=f"{run.spec.name}: {summary}", best_epoch=run.progress.record.saved_epoch)
    run.console.say(f"curves: {contract.path_for_user(path)}")


def _write_weights(run: Run, selected: SelectedWeights, contract: RunContract, path: Path) -> None:
    names = run.learner.saved_names
    matched = match_weights(selected.weights, names)
    weights = {name: matched[name] for name in names}
    if run.workload.exports is not None:
        weights = dict(run.workload.exports(_load_selected(run, selected)))
    flat = flatten({WEIGHTS: {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}})
    write_atomically(path, lambda stream: write_document(stream, flat))
    run.console.say(f"weights: {contract.path_for_user(path)}")


def _export(
    run: Run, selected: SelectedWeights, inputs: tuple[torch.Tensor, ...], contract: RunContract, path: Path
) -> None:
    from trainer.report.export import export_onnx  # noqa: PLC0415

    difference = export_onnx(_load_selected(run, selected), inputs, path, names=run.workload.export_names)
    run.console.say(f"ONNX: {contract.path_for_user(path)}, largest difference from torch {difference:.1e}")


def _load_selected(run: Run, selected: SelectedWeights) -> nn.Module:
    """Return the whole model with the selected weights."""
    model = run.model if run.learner.is_as_built else run.spec.rebuild()
    if not run.learner.is_as_built and not run.learner.sharding:
        model.load_state_dict(run.model.state_dict())  # weights that aren't trained may come from elsewhere
    load_weights(model, selected.weights, names=run.learner.saved_names if run.workload.trainable_only else None)
    return model


def _card_facts(run: Run, selected: SelectedWeights, files: list[Path]) -> CardFacts:
    return CardFacts(
        name=run.spec.name,
        description=run.spec.description,
        license=run.settings.publish.license,
        data=run.workload.data,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        epoch=selected.epoch,
        epochs=run.progress.epoch,
        steps=run.progress.step,
        metrics=selected.metrics,
        settings=flatten_settings(run.settings),
        software=f"torch {torch.__version__}, Python {platform.python_version()}",
        device=f"{run.group.size} x {device_name(run.group.device)}",
        files={path.name: _FILES[path.name] for path in files},
        started_from=run.spec.started_from,
    )


def _publish(run: Run, contract: RunContract, summary: str) -> None:
    publish = run.settings.publish
    files = [contract.output_dir / _CARD, *_list_files(contract.output_dir)]
    if publish.kaggle_dataset and not publish.kaggle_upload:
        folder = contract.output_dir / "kaggle"
        write_dataset(folder, publish.kaggle_dataset, files, license_id=publish.license)
        run.console.say(f"Kaggle: kaggle datasets create -p {contract.path_for_user(folder)}")
    if publish.hub_repo:
        message = f"{run.spec.name}: {summary}"
        run.report.pusher.wait()
        named = {path.name: path for path in files}
        address = push(publish.hub_repo, named, contract.hub, private=publish.hub_private, message=message)
        run.console.say(f"Hub: {address}")
    # Last, because each upload is another version, whereas the Hub takes only what has changed.
    if publish.kaggle_upload:
        notes = f"{run.spec.name}: {summary}"
        dataset, license_id = publish.kaggle_dataset, publish.license
        address = upload_dataset(dataset, files, contract.kaggle, license_id=license_id, notes=notes)
        run.console.say(f"Kaggle: {address}")


def _list_files(folder: Path) -> list[Path]:
    return [folder / name for name in _FILES if (folder / name).exists()]


def _has(run: Run, output: str, *packages: str) -> bool:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        run.console.say(f"{output} left out: install {' '.join(missing)} to get it")
    return not missing
