"""What a finished run leaves: learning curves, and the best weights as ONNX."""

from importlib.util import find_spec
from pathlib import Path

from trainer.run import Run, describe_best
from trainer.status import read_metrics

_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def write_outputs(name: str, run: Run, folder: Path) -> None:
    """Write curves.png and model.onnx into the output folder; what cannot be made here is said.

    Raises:
        ExportError: the exported model computes something else than the trained one.
    """
    if run.settings.curves and _has(run, "curves.png", "matplotlib"):
        # Only here: half a second and 50 MiB that training doesn't need.
        from trainer.curves import draw_curves  # noqa: PLC0415

        rows = read_metrics(folder / "metrics.jsonl")
        draw_curves(
            rows,
            folder / "curves.png",
            title=f"{name}: {describe_best(run)}",
            best_epoch=run.progress.best_epoch,
        )
        run.console.say(f"curves: {folder / 'curves.png'}")
    _load_best_weights(run)
    if run.settings.onnx and run.workload.export_inputs and _has(run, "model.onnx", *_ONNX_PACKAGES):
        from trainer.export import export_onnx  # noqa: PLC0415

        difference = export_onnx(run.model, run.workload.export_inputs, folder / "model.onnx")
        run.console.say(f"ONNX: {folder / 'model.onnx'}, largest difference to torch {difference:.1e}")


def _load_best_weights(run: Run) -> None:
    best = run.store.load_best(run.console.say)
    if best is None:
        run.console.say("the last weights are exported instead of the best")
    else:
        run.model.load_state_dict(best["model"])


def _has(run: Run, output: str, *packages: str) -> bool:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        run.console.say(f"{output} left out: install {' '.join(missing)} to get it")
    return not missing
