"""What a user sees of a run: trackers, curves, lines and a progress bar."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from tests.trainer import harness
from trainer.report.console import Console, render_figures
from trainer.report.curves import draw_curves

ONE_EPOCH = ("epochs=1", "batch_size=64", "model.width=6", "curves=false", "onnx=false")


# Trackers


def test_tensorboard_has_every_row(tmp_path: Path) -> None:
    """TensorBoard's own reader finds each figure of metrics.jsonl at its step."""
    folder = tmp_path / "output"
    assert harness.call(folder, *ONE_EPOCH, "track.tensorboard=true") == 0
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    rows = harness.read_rows(folder)
    for tag, name in (
        ("training/loss", "loss"),
        ("training/data_wait", "data_wait"),
        ("validation/val_loss", "val_loss"),
    ):
        expected = [(row["step"], row[name]) for row in rows if name in row]
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        assert [step for step, _ in found] == [step for step, _ in expected]
        assert [value for _, value in found] == pytest.approx([value for _, value in expected], rel=1e-5)


def test_wandb_works_offline_without_an_account(tmp_path: Path) -> None:
    """No key, no network: the run is in the output folder for `wandb sync`, and there is no prompt."""
    folder = tmp_path / "output"
    result = harness.run(folder, *ONE_EPOCH, "track.wandb=true", KEDGE_RUN_ID="run1", HOME=str(tmp_path))
    assert result.code == 0, result.err
    (kept,) = (folder / "wandb").glob("offline-run-*/run-run1.wandb")
    assert b"val_accuracy" in kept.read_bytes()


def test_tracker_that_is_not_installed_is_refused_with_what_to_install(tmp_path: Path) -> None:
    """In an interpreter that can't import wandb: exit 2, the fix, and no folder."""
    program = (
        "import sys; sys.path = [place for place in sys.path if 'site-packages' not in place]\n"
        "from trainer.base.config import TrackSettings\n"
        "from trainer.report.trackers import check_trackers\n"
        "from trainer.base.errors import BadRequestError\n"
        "try: check_trackers(TrackSettings(wandb=True))\n"
        "except BadRequestError as err: print(err)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=harness.plain_environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "pip install wandb" in done.stdout


# Pictures and lines


def test_curves_have_throughput_and_memory(tmp_path: Path) -> None:
    """A panel each for loss, metric, rate, throughput and memory: figures without rows leave theirs empty."""
    rows = [
        {"step": step, "epoch": 1, "loss": 1 / step, "lr": 0.1, "samples_per_second": 90.0 + step, "memory_gib": 1.5}
        for step in range(1, 9)
    ]
    validation = {"step": 8, "epoch": 1, "val_loss": 0.2, "val_accuracy": 0.9}
    draw_curves([*rows, validation], tmp_path / "with.png", title="run", best_epoch=1)
    bare = [{**row, "samples_per_second": None, "memory_gib": None} for row in rows]
    draw_curves([*bare, validation], tmp_path / "without.png", title="run", best_epoch=1)
    with_figures, without = (matplotlib.image.imread(tmp_path / f"{name}.png") for name in ("with", "without"))
    height = with_figures.shape[0]
    blue, green = (0x1F, 0x5F, 0xA8), (0x2A, 0x7F, 0x4F)
    lower = slice(height * 3 // 5, height)
    for colour in (blue, green):
        assert _count(with_figures[lower], colour) > 200
        assert _count(without[lower], colour) < _count(with_figures[lower], colour) / 2


def test_log_gets_a_line_only_if_there_was_none_for_half_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of short epochs are enough; a long one has lines in between."""
    console = Console(enabled=True, seconds_between_lines=0.05)
    console.say("epoch 1")
    console.show_figures("step 1", "loss 2")
    time.sleep(0.06)
    console.show_figures("step 2", "loss 1")
    console.show_figures("step 3", "loss 0.5")
    assert capsys.readouterr().out.splitlines() == ["epoch 1", "step 2  loss 1"]


def test_figures_have_their_names() -> None:
    """Loss, rate, throughput, wait, memory, and the utilisation if it is known."""
    row = {"loss": 0.5, "lr": 0.001, "samples_per_second": 1234.0, "data_wait": 0.25, "memory_gib": 2.0}
    assert render_figures(row) == "loss 0.5  lr 0.001  1,234 samples/s  data wait 25%  2.0 GiB"
    assert render_figures({**row, "mfu": 0.41}).endswith("MFU 41.0%")


def test_terminal_gets_a_bar_and_a_log_does_not(tmp_path: Path) -> None:
    """On a pseudo-terminal the steps are drawn in place, with their figures; the epoch's line stays."""
    leader, follower = pty.openpty()
    argv = [sys.executable, "-m", "trainer", "digits", *harness.settings_args(ONE_EPOCH)]
    argv += ["--output-dir", str(tmp_path / "output")]
    environ = harness.plain_environ(TERM="xterm-256color", COLUMNS="160")
    with subprocess.Popen(argv, env=environ, cwd=tmp_path, stdout=follower, stderr=subprocess.PIPE) as process:
        os.close(follower)
        shown = _read_all(leader)
        assert process.wait(timeout=harness.TIMEOUT_SECONDS) == 0
    os.close(leader)
    assert "/22" in shown
    assert "data wait" in shown
    assert "\x1b[" in shown
    assert "val_accuracy" in shown


def _count(pixels: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((np.abs(pixels[:, :, :3] - np.array(colour) / 255).max(axis=2) < 0.02).sum())


def _read_all(descriptor: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            return b"".join(parts).decode(errors="replace")
        parts.append(part)
