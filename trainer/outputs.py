"""What a finished run leaves: curves, the best weights as safetensors and ONNX, a model card, and what is published."""

import platform
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoints.document import write_document
from trainer.checkpoints.tree import WEIGHTS, flatten
from trainer.checkpoints.weights import load_weights
from trainer.config import Settings, flatten_settings
from trainer.contract import RunContract
from trainer.data import Batch
from trainer.files import write_atomically
from trainer.hardware import device_name
from trainer.hub import check_hub, push
from trainer.kaggle import check_dataset, write_dataset
from trainer.model_card import CardFacts, render_card
from trainer.recipes import list_recipes
from trainer.run import Run, describe_best
from trainer.status import read_metrics
from trainer.trackers import check_trackers

_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
# In the order in which the card lists them; those that were written are handed out.
_FILES = {
    "model.safetensors": "the weights, under the model's own names",
    "model.onnx": "the model with its weights, compared with torch by onnxruntime",
    "curves.png": "loss, metrics, learning rate, throughput and memory over training",
    "metrics.jsonl": "the same figures, one JSON object a line",
}
_CARD = "README.md"


def check_outputs(settings: Settings, contract: RunContract) -> None:
    """Make sure, before anything is touched, that what is asked for can be made.

    Raises:
        BadRequestError: a package or a token is missing, or a name cannot be used.
    """
    check_trackers(settings.track)
    if settings.publish.hub_repo:
        check_hub(settings.publish.hub_repo, contract.hub)
    if settings.publish.kaggle_dataset:
        check_dataset(settings.publish.kaggle_dataset)


def write_outputs(name: str, run: Run, contract: RunContract) -> None:
    """Write a finished run's results into the output folder, and publish them; what cannot be made here is said.

    Raises:
        ExportError: the exported model computes something else than the trained one.
        PublishError: the Hub refuses; everything else is written.
    """
    folder = contract.output_dir
    if run.settings.curves and _has(run, "curves.png", "matplotlib"):
        _draw_curves(name, run, folder / "curves.png")
    best = _load_best_weights(run)
    _write_weights(run, folder / "model.safetensors")
    inputs = run.workload.export_inputs
    if run.settings.onnx and inputs is not None and _has(run, "model.onnx", *_ONNX_PACKAGES):
        _export(run, inputs, folder / "model.onnx")
    card = render_card(_card_facts(name, run, best, _list_files(folder)))
    write_atomically(folder / _CARD, lambda stream: stream.write(card.encode()), durable=False)
    _publish(name, run, contract)


def _draw_curves(name: str, run: Run, path: Path) -> None:
    # Only here: half a second and 50 MiB that training doesn't need.
    from trainer.curves import draw_curves  # noqa: PLC0415

    rows = read_metrics(path.with_name("metrics.jsonl"))
    draw_curves(rows, path, title=f"{name}: {describe_best(run)}", best_epoch=run.progress.best_epoch)
    run.console.say(f"curves: {path}")


def _load_best_weights(run: Run) -> dict[str, Any] | None:
    best = run.store.load_best(run.console.say)
    if best is None:
        run.console.say("the last weights are exported instead of the best")
    else:
        load_weights(run.model, best["model"])
    return best


def _write_weights(run: Run, path: Path) -> None:
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in run.model.state_dict().items()}
    flat = flatten({WEIGHTS: weights})
    write_atomically(path, lambda stream: write_document(stream, flat))
    run.console.say(f"weights: {path}")


def _export(run: Run, inputs: Batch, path: Path) -> None:
    from trainer.export import export_onnx  # noqa: PLC0415

    difference = export_onnx(run.model, inputs, path)
    run.console.say(f"ONNX: {path}, largest difference to torch {difference:.1e}")


def _card_facts(name: str, run: Run, best: dict[str, Any] | None, files: list[Path]) -> CardFacts:
    return CardFacts(
        name=name,
        description=list_recipes()[name],
        license=run.settings.publish.license,
        data=run.workload.data,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        epoch=best["epoch"] if best else 0,
        epochs=run.progress.epoch,
        steps=run.progress.step,
        metrics=best["metrics"] if best else run.progress.metrics,
        settings=flatten_settings(run.settings),
        software=f"torch {torch.__version__}, Python {platform.python_version()}",
        device=f"{run.world.size} x {device_name(run.world.device)}",
        files={path.name: _FILES[path.name] for path in files},
    )


def _publish(name: str, run: Run, contract: RunContract) -> None:
    publish = run.settings.publish
    files = [contract.output_dir / _CARD, *_list_files(contract.output_dir)]
    if publish.kaggle_dataset:
        folder = contract.output_dir / "kaggle"
        write_dataset(folder, publish.kaggle_dataset, files, license_id=publish.license)
        run.console.say(f"Kaggle: kaggle datasets create -p {folder}")
    if publish.hub_repo:
        message = f"{name}: {describe_best(run)}"
        address = push(publish.hub_repo, files, contract.hub, private=publish.hub_private, message=message)
        run.console.say(f"Hub: {address}")


def _list_files(folder: Path) -> list[Path]:
    return [folder / name for name in _FILES if (folder / name).exists()]


def _has(run: Run, output: str, *packages: str) -> bool:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        run.console.say(f"{output} left out: install {' '.join(missing)} to get it")
    return not missing
