"""What a finished run leaves: curves, the best weights as safetensors and ONNX, a model card, and what is published."""

import platform
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from trainer.checkpoints.document import write_document
from trainer.checkpoints.loading import all_rows, load_best, load_newest
from trainer.checkpoints.tree import WEIGHTS, State, flatten
from trainer.checkpoints.weights import load_weights, match_weights
from trainer.config import Settings, flatten_settings
from trainer.contract import RunContract
from trainer.data import Batch
from trainer.distributed import ALONE
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The weights that are handed out: whole, on the CPU, with what a validation said of them.

    `epoch` is that after which they were the best, 0 for the last ones.
    """

    weights: State
    epoch: int
    metrics: dict[str, float]


def choose_weights(run: Run) -> Chosen | None:
    """Take the best weights of a run that is trained, else the last ones; for the main process only. Collective."""
    is_divided, say = run.learner.sharding is not None, run.console.say
    if not is_divided and not run.world.is_main:
        return None
    readers = run.world if is_divided else ALONE
    want = all_rows if run.world.is_main else _no_rows
    best = load_best(run.store, readers, say, want=want)
    if best:
        chosen = Chosen(weights=best["model"], epoch=best["epoch"], metrics=best["metrics"])
    else:
        say("the last weights are exported instead of the best")
        last = load_newest(run.store, readers, say, want=want) if is_divided else run.learner.state()
        chosen = Chosen(weights=last["model"] if last else {}, epoch=0, metrics=run.progress.metrics)
    return chosen if run.world.is_main else None


def write_outputs(name: str, run: Run, chosen: Chosen, contract: RunContract) -> None:
    """Write a finished run's results into the output folder, and publish them; what cannot be made here is said.

    Raises:
        ExportError: the exported model computes something else than the trained one.
        PublishError: the Hub refuses; everything else is written.
    """
    folder = contract.output_dir
    if run.settings.curves and _has(run, "curves.png", "matplotlib"):
        _draw_curves(name, run, contract, folder / "curves.png")
    _write_weights(run, chosen, contract, folder / "model.safetensors")
    inputs = run.workload.export_inputs
    if run.settings.onnx and inputs is not None and _has(run, "model.onnx", *_ONNX_PACKAGES):
        _export(run, chosen, inputs, contract, folder / "model.onnx")
    card = render_card(_card_facts(name, run, chosen, _list_files(folder)))
    write_atomically(folder / _CARD, lambda stream: stream.write(card.encode()), durable=False)
    _publish(name, run, contract)


def _no_rows(_total: int) -> range:
    return range(0)


def _draw_curves(name: str, run: Run, contract: RunContract, path: Path) -> None:
    # Only here: half a second and 50 MiB that training doesn't need.
    from trainer.curves import draw_curves  # noqa: PLC0415

    rows = read_metrics(path.with_name("metrics.jsonl"))
    draw_curves(rows, path, title=f"{name}: {describe_best(run)}", best_epoch=run.progress.best_epoch)
    run.console.say(f"curves: {contract.show(path)}")


def _write_weights(run: Run, chosen: Chosen, contract: RunContract, path: Path) -> None:
    names = run.model.state_dict()
    matched = match_weights(chosen.weights, names)
    flat = flatten({WEIGHTS: {name: matched[name].detach().cpu().contiguous() for name in names}})
    write_atomically(path, lambda stream: write_document(stream, flat))
    run.console.say(f"weights: {contract.show(path)}")


def _export(run: Run, chosen: Chosen, inputs: Batch, contract: RunContract, path: Path) -> None:
    from trainer.export import export_onnx  # noqa: PLC0415

    model = run.rebuild() if run.learner.sharding else run.model
    load_weights(model, chosen.weights)
    difference = export_onnx(model, inputs, path)
    run.console.say(f"ONNX: {contract.show(path)}, largest difference to torch {difference:.1e}")


def _card_facts(name: str, run: Run, chosen: Chosen, files: list[Path]) -> CardFacts:
    return CardFacts(
        name=name,
        description=list_recipes()[name],
        license=run.settings.publish.license,
        data=run.workload.data,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        epoch=chosen.epoch,
        epochs=run.progress.epoch,
        steps=run.progress.step,
        metrics=chosen.metrics,
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
        run.console.say(f"Kaggle: kaggle datasets create -p {contract.show(folder)}")
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
