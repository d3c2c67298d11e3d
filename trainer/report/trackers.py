"""Trackers (TensorBoard, Weights & Biases): each gets every row of metrics.jsonl. Imported only when enabled.

A resumed run goes on in the same tracked run: TensorBoard by its folder, Weights & Biases by an id that is kept with
the checkpoints.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from trainer.base.config import TrackSettings
from trainer.base.errors import BadRequestError, first_line
from trainer.base.files import write_atomically

TRACKER_FILE = "tracker.json"
"""The file beside the checkpoints that has the id of the tracked run."""
Row = Mapping[str, float]
_POSITION = ("step", "epoch")


class Tracker(Protocol):
    """A receiver of a run's metrics."""

    def log(self, row: Row) -> None:
        """Log one row; its `step` is the x-axis."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


def check_trackers(settings: TrackSettings) -> None:
    """Check before the run starts that the enabled trackers are installed.

    Raises:
        BadRequestError: one is not installed.
    """
    for name in ("tensorboard", "wandb"):
        if getattr(settings, name) and find_spec(name) is None:
            raise BadRequestError(
                f"--set track.{name}=true needs a package that is missing",
                why=f"{name} is not installed",
                fix=f"pip install {name}, or leave track.{name} out: metrics.jsonl is written in any case",
            )


def read_tracker_id(path: Path) -> str | None:
    """Read the id of the tracked run that a file keeps; None if there is no such file, or it is damaged."""
    try:
        content = json.loads(path.read_text())
        return str(content["wandb"]) if content["wandb"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def open_trackers(
    settings: TrackSettings,
    folder: Path,
    *,
    name: str,
    run_id: str | None,
    step: int,
    config: Mapping[str, Any],
    id_file: Path | None = None,
) -> list[Tracker]:
    """Open the trackers that the settings enable.

    Args:
        settings: the trackers to open.
        folder: the parent of each tracker's own folder.
        name: the tracked run's name, unless the settings have one.
        run_id: the id of the tracked run, if it is known; else the tracker chooses one.
        step: the number of steps so far; TensorBoard drops rows of later steps.
        config: the run's settings, flat.
        id_file: keeps the id for the next start of this run.
    """
    trackers: list[Tracker] = []
    if settings.tensorboard:
        trackers.append(_TensorBoard(folder / "tensorboard", step=step))
    if settings.wandb:
        tracker = _WandB(folder, settings, name=name, run_id=run_id, config=config)
        trackers.append(tracker)
        if id_file is not None and tracker.run_id:
            _keep_id(id_file, tracker.run_id)
    return trackers


def _keep_id(path: Path, run_id: str) -> None:
    if read_tracker_id(path) != run_id:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"wandb": run_id}) + "\n"
        write_atomically(path, lambda stream: stream.write(text.encode()))


class _TensorBoard:
    def __init__(self, folder: Path, *, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def log(self, row: Row) -> None:
        for name, value in _values(row).items():
            group = "validation" if name.startswith("val_") else "training"
            self._writer.add_scalar(f"{group}/{name}", value, int(row["step"]))

    def close(self) -> None:
        self._writer.close()


class _WandB:
    def __init__(
        self, folder: Path, settings: TrackSettings, *, name: str, run_id: str | None, config: Mapping[str, Any]
    ) -> None:
        import wandb  # noqa: PLC0415

        try:
            mode = _choose_mode(wandb)
            self._run = wandb.init(
                project=settings.wandb_project,
                name=settings.name or name,
                tags=settings.tags or None,
                id=run_id,
                resume="allow" if run_id and mode == "online" else None,
                dir=folder,
                config=dict(config),
                mode=mode,
                settings=wandb.Settings(console="off"),
            )
        except wandb.Error as err:
            raise BadRequestError(
                "Weights & Biases does not accept the run",
                why=first_line(err),
                fix="set WANDB_MODE=offline and use `wandb sync` later, or leave track.wandb out",
            ) from err
        # That of a disabled tracker is made up.
        self.run_id = "" if mode == "disabled" else str(self._run.id)
        # Rows of training and of validation share a step, and a resumed run repeats some.
        self._run.define_metric("*", step_metric="step")

    def log(self, row: Row) -> None:
        self._run.log({"step": row["step"], "epoch": row["epoch"], **_values(row)})

    def close(self) -> None:
        self._run.finish()


def _choose_mode(wandb: Any) -> Any:
    """Use WANDB_MODE, or offline mode if there is no API key, because wandb would prompt: use `wandb sync` later."""
    mode = wandb.setup().settings.mode
    return "offline" if mode == "online" and not wandb.login(prompt=False, verify=False) else mode


def _values(row: Row) -> dict[str, float]:
    return {name: value for name, value in row.items() if name not in _POSITION}
