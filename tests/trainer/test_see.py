"""What is seen of a run: stalls, trackers, curves, utilisation, lines and a bar."""

import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]
from torch import nn

from tests.trainer import harness
from trainer.config import StallSettings
from trainer.console import Console, render_figures
from trainer.curves import draw_curves
from trainer.flops import training_flops_per_sample, utilisation
from trainer.hardware import find_peak_tflops
from trainer.stall import Stall, StallWatch, allowed_seconds
from trainer.status import Status, StatusFile
from trainer.stopwatch import Stopwatch

ONE_EPOCH = ("epochs=1", "batch_size=64", "model.width=6", "curves=false", "onnx=false")
QUICK = StallSettings(factor=2, seconds=0.04, first_epoch_minutes=0)
SECONDS = 30


# Stalls


@pytest.mark.parametrize(
    ("median", "is_warm", "expected"),
    [
        (None, False, 1800),
        (None, True, 1800),
        (0.1, False, 1800),
        (0.1, True, 60),
        (30.0, True, 600),
        (120, False, 2400),
    ],
)
def test_step_may_take_a_multiple_of_the_median_and_half_an_hour_in_the_first_epoch(
    median: float | None, is_warm: bool, expected: float
) -> None:
    """20 x the median and 60 s at least by default; until the first epoch has ended, 30 minutes at least."""
    assert allowed_seconds(StallSettings(), median=median, is_warm=is_warm) == expected


def test_step_that_hangs_is_reported_with_its_place_and_so_is_its_end() -> None:
    """One report when it takes too long, saying in which function; one when the steps go on."""
    watch, seen = StallWatch(QUICK), _Seen()
    watch.start(seen)
    try:
        for number in watch.follow(range(6)):
            if number == 1:
                watch.end_epoch()
            if number == 3:
                seen.wait_for(1)  # as long as the report doesn't come
        seen.wait_for(2)
    finally:
        watch.close()
    stall, end = seen.reports
    assert isinstance(stall, Stall)
    assert stall.seconds >= 0.04
    assert "test_see.py" in stall.where or "threading.py" in stall.where
    assert end is None


def test_nothing_is_reported_before_the_first_epoch_has_ended() -> None:
    """A first step a hundred times as long as the others is compilation, not a stall."""
    watch, seen = StallWatch(StallSettings(factor=2, seconds=0.01, first_epoch_minutes=30)), _Seen()
    watch.start(seen)
    try:
        for number in watch.follow(range(3)):
            time.sleep(0.2 if number == 2 else 0.001)
    finally:
        watch.close()
    assert seen.reports == []


def test_time_between_two_iterations_is_no_stall() -> None:
    """Checkpoints, and what a recipe does between epochs, aren't steps."""
    watch, seen = StallWatch(QUICK), _Seen()
    watch.start(seen)
    try:
        list(watch.follow(range(5)))
        watch.end_epoch()
        time.sleep(0.2)
    finally:
        watch.close()
    assert seen.reports == []


def test_watch_that_is_switched_off_has_no_thread() -> None:
    """`stall.factor=0` means never."""
    before = threading.active_count()
    watch = StallWatch(StallSettings(factor=0))
    watch.start(_Seen())
    assert threading.active_count() == before
    watch.close()


def test_warning_stays_in_status_json_until_it_is_taken_back(tmp_path: Path) -> None:
    """It is there while the run is running, and never in how it ended."""
    file = StatusFile(tmp_path / "status.json")
    status = Status(epoch=1, epochs=2, step=3, steps=4, metrics={}, checkpoint=None)
    file.warn("stalled: no step for 61 s", status)
    file.write("running", status)
    assert file.read()["warning"] == "stalled: no step for 61 s"
    file.write("stopped", status)
    assert "warning" not in file.read()
    file.warn(None, status)
    assert "warning" not in file.read()


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
    """No key, no network: the run is kept in the output folder for `wandb sync`, and nothing asks."""
    folder = tmp_path / "output"
    result = harness.run(folder, *ONE_EPOCH, "track.wandb=true", KEDGE_RUN_ID="run1", HOME=str(tmp_path))
    assert result.code == 0, result.err
    (kept,) = (folder / "wandb").glob("offline-run-*/run-run1.wandb")
    assert b"val_accuracy" in kept.read_bytes()


def test_tracker_that_is_not_installed_is_refused_with_what_to_install(tmp_path: Path) -> None:
    """In an interpreter that can't see wandb: exit 2, the fix, and no folder."""
    program = (
        "import sys; sys.path = [place for place in sys.path if 'site-packages' not in place]\n"
        "from trainer.config import TrackSettings\n"
        "from trainer.trackers import check_trackers\n"
        "from trainer.errors import BadRequestError\n"
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


# Figures


def test_flops_of_an_mlp_are_three_times_its_forward_products() -> None:
    """2 x in x out for each layer forward, twice that backward; the model and the generators are untouched."""
    model = nn.Sequential(nn.Linear(64, 128), nn.Dropout(0.5), nn.ReLU(), nn.Linear(128, 10))
    state = torch.get_rng_state()
    assert training_flops_per_sample(model, (torch.zeros(4, 64),)) == 3 * 2 * (64 * 128 + 128 * 10)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_utilisation_is_the_share_of_the_devices_peak() -> None:
    """1 GFLOP a sample at 1,000 samples/s on two devices of 5 TFLOPS is a tenth."""
    assert utilisation(flops_per_sample=1e9, samples_per_second=1000, peak_tflops=5, devices=2) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H200", 989.4),
        ("NVIDIA A10G", 70.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("Tesla T4", 65.0),
        ("Tesla V100-SXM2-16GB", 125.0),
        ("NVIDIA L40S", 362.05),
        ("NVIDIA L4", 121.0),
        ("AMD Instinct MI300X", 1307.4),
        ("AMD Instinct MI300X VF", 1307.4),
        ("AMD Radeon RX 7800 XT", None),
        ("cpu", None),
    ],
)
def test_peak_is_found_by_the_drivers_name(name: str, tflops: float | None) -> None:
    """Whole words decide: an L4 is no L40S; what isn't in the table has no peak."""
    assert find_peak_tflops(name) == tflops


def test_mfu_is_shown_where_the_peak_is_known(tmp_path: Path) -> None:
    """Never on a CPU by itself; with `track.peak_tflops` every train row has it, counted from the export inputs."""
    assert harness.call(tmp_path / "output", *ONE_EPOCH, "track.peak_tflops=0.1") == 0
    train = [row for row in harness.read_rows(tmp_path / "output") if "loss" in row]
    assert train
    for row in train:
        assert row["mfu"] == pytest.approx(
            row["samples_per_second"] * train[0]["mfu"] / train[0]["samples_per_second"], 1e-4
        )
        assert 0 < row["mfu"] < 10


def test_data_wait_is_the_share_of_the_time_spent_on_the_next_batch() -> None:
    """A loader that sleeps and a step that doesn't: nearly all of it; the other way round: nearly nothing."""

    def slow() -> Iterator[int]:
        for number in range(3):
            time.sleep(0.02)
            yield number

    stopwatch = Stopwatch()
    for _ in stopwatch.waiting(slow()):
        stopwatch.count()
    assert stopwatch.data_wait() > 0.9
    stopwatch.restart()
    for _ in stopwatch.waiting(range(3)):
        time.sleep(0.02)
    assert stopwatch.data_wait() < 0.1


# Pictures and lines


def test_curves_have_throughput_and_memory(tmp_path: Path) -> None:
    """A panel each for loss, metric, rate, throughput and memory: what has no rows leaves its panel empty."""
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


def test_log_gets_a_line_only_where_there_was_none_for_half_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """Short epochs leave their own lines alone; a long one says how it goes."""
    console = Console(speaks=True, seconds_between_lines=0.05)
    console.say("epoch 1")
    console.show_figures("step 1", "loss 2")
    time.sleep(0.06)
    console.show_figures("step 2", "loss 1")
    console.show_figures("step 3", "loss 0.5")
    assert capsys.readouterr().out.splitlines() == ["epoch 1", "step 2  loss 1"]


def test_figures_name_what_they_are() -> None:
    """Loss, rate, throughput, wait, memory, and the utilisation where there is one."""
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


class _Seen:
    """Keeps the reports of a watch."""

    def __init__(self) -> None:
        self.reports: list[Stall | None] = []
        self._came = threading.Condition()

    def __call__(self, stall: Stall | None) -> None:
        with self._came:
            self.reports.append(stall)
            self._came.notify_all()

    def wait_for(self, count: int) -> None:
        with self._came:
            assert self._came.wait_for(lambda: len(self.reports) >= count, SECONDS)


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
