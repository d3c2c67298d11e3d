"""`--profile`: the trace, its steps, and where the time went."""

import gzip
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.trainer import harness
from trainer.base.config import Settings
from trainer.base.contract import read_contract
from trainer.base.errors import BadRequestError
from trainer.base.recipe import Recipe, Workload
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch
from trainer.cli import main
from trainer.report.profile import ProfileRequest, StepProfiler, parse_profile
from trainer.report.time_shares import TimeShares, measure_shares, render_shares
from trainer.run.engine import run_recipe

# Shape legend: B batch, F features.
STEPS = ProfileRequest(first=2, last=4)


class Rows:
    """Rows of ones, each made in `seconds`."""

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 24

    def sample(self, index: int, _rng: np.random.Generator) -> Batch:
        time.sleep(self.seconds)
        return torch.ones(8), torch.tensor(index % 2)


class Net(nn.Module):
    """A classifier that also multiplies two large matrices, as often as asked for."""

    def __init__(self, *, products: int) -> None:
        super().__init__()
        self.head = nn.Linear(8, 2)
        self.products = products
        self.matrix_FF = nn.Parameter(torch.ones(700, 700) / 700, requires_grad=False)

    def forward(self, rows_BF: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for _ in range(self.products):
                torch.mm(self.matrix_FF, self.matrix_FF)
        logits_BF: torch.Tensor = self.head(rows_BF)
        return logits_BF


def train(folder: Path, request: ProfileRequest, *, seconds: float = 0.0, products: int = 0, **options: Any) -> None:
    """Six steps of four rows."""

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        rows_BF, labels_B = batch
        return functional.cross_entropy(model(rows_BF), labels_B)

    def build(_: Settings) -> Workload:
        return Workload(
            model=Net(products=products),
            train_data=Rows(seconds=seconds),
            validation_data=Rows(seconds=0),
            loss=loss,
            metrics=lambda _model, batch: {"loss": torch.zeros(len(batch[1]))},
        )

    settings = replace(Settings(epochs=1, batch_size=4, curves=False, onnx=False), **options)
    contract = read_contract({}, output_dir=folder)
    run_recipe("digits", Recipe(settings=settings, build=build), contract, StopFlag(), profile=request)


def observe(profiler: StepProfiler, *, done: int = 0, steps: int) -> None:
    """Go through steps as the loop does."""
    for step, _ in enumerate(profiler.follow(iter(range(steps)), done=done), start=done):
        profiler.begin_step(step)
        profiler.end_step(step)


def read_trace(folder: Path, name: str = "steps-2-4.json.gz") -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress((folder / "profile" / name).read_bytes()))["traceEvents"]
    return events


def read_shares(printed: str) -> dict[str, int]:
    (line,) = (line for line in printed.splitlines() if line.startswith("profile steps "))
    return {name: int(percent) for name, percent in re.findall(r"(data|device|communication|host) (\d+) %", line)}


# The request


def test_request_is_parsed() -> None:
    """Both ends are included; `ranks=all` traces every process."""
    assert parse_profile("steps=10..20") == ProfileRequest(first=10, last=20)
    assert parse_profile("steps=3..3,ranks=all") == ProfileRequest(first=3, last=3, all_ranks=True)


@pytest.mark.parametrize("text", ["", "10..20", "steps=20..10", "steps=0..3", "steps=1-3", "steps=1..3,ranks=some"])
def test_bad_request_is_refused_with_an_example(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(BadRequestError, match=r"steps=10\.\.20"):
        parse_profile(text)


def test_steps_beyond_the_run_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, from the command line: a run of 44 steps has no step 45."""
    folder, settings = tmp_path / "output", ("epochs=2", "batch_size=64")
    argv = ["digits", *harness.settings_args(settings), "--output-dir", str(folder), "--profile", "steps=40..45"]
    assert main(argv, environ={}, stop=StopFlag()) == 2
    assert "the run has 44 steps" in capsys.readouterr().err
    assert not folder.exists()


# The trace


def test_slow_source_is_seen_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A source that sleeps; the trace is JSON that has these steps and no other."""
    train(tmp_path, STEPS, seconds=0.005)
    shares = read_shares(capsys.readouterr().out)
    assert shares["data"] > 50
    assert sum(shares.values()) == 100
    steps = {event["name"] for event in read_trace(tmp_path) if event.get("name", "").startswith("loop: step")}
    assert steps == {"loop: step 2", "loop: step 3", "loop: step 4"}


def test_heavy_products_are_seen_as_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a CPU the operators are the device's work."""
    train(tmp_path, STEPS, products=5)
    shares = read_shares(capsys.readouterr().out)
    assert shares["device"] > 50
    assert sum(shares.values()) == 100
    assert any(event.get("name") == "aten::mm" for event in read_trace(tmp_path))


def test_loop_that_ends_early_leaves_what_it_traced(tmp_path: Path) -> None:
    """Its name has the steps that are in it."""
    said: list[str] = []
    profiler = StepProfiler(STEPS, tmp_path, device=harness.CPU, say=said.append)
    observe(profiler, steps=3)
    profiler.close()
    profiler.close()
    assert len(said) == 1
    assert said[0].startswith("profile steps 2..3: ")
    assert read_trace(tmp_path, "steps-2-3.json.gz")


def test_resumed_run_past_the_steps_traces_nothing(tmp_path: Path) -> None:
    """The same command resumes, so this is no error."""
    said: list[str] = []
    profiler = StepProfiler(STEPS, tmp_path, device=harness.CPU, say=said.append)
    observe(profiler, done=4, steps=3)
    profiler.close()
    assert said == []
    assert not (tmp_path / "profile").exists()


def test_each_process_writes_its_own_trace_if_asked(tmp_path: Path) -> None:
    """By default only the first process does."""
    for request in (STEPS, replace(STEPS, all_ranks=True)):
        profiler = StepProfiler(request, tmp_path, device=harness.CPU, rank=1, say=lambda _: None)
        observe(profiler, steps=5)
        assert (tmp_path / "profile" / "steps-2-4.rank-1.json.gz").exists() is request.all_ranks


# The shares


def spans(*rows: tuple[str, str, float, float], tid: int = 1) -> Iterator[dict[str, Any]]:
    for category, name, begin, end in rows:
        yield {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": end - begin, "pid": 1, "tid": tid}


MARKS = (("user_annotation", "loop: wait for data", 0.0, 30.0), ("user_annotation", "loop: step 7", 30.0, 100.0))


def test_what_a_gpu_computes_comes_first() -> None:
    """Waiting for data beside a kernel costs nothing, nor does a collective beside one; annotations don't count."""
    trace = [
        *spans(*MARKS, ("cpu_op", "aten::mm", 30, 99)),
        *spans(("kernel", "gemm", 10, 50), ("gpu_memcpy", "Memcpy HtoD", 45, 60), tid=7),
        *spans(("kernel", "ncclDevKernel_AllReduce", 40, 80), ("gpu_user_annotation", "loop: step 7", 0, 100), tid=8),
    ]
    shares = measure_shares(trace)
    assert shares is not None
    assert [shares.device, shares.communication, shares.data] == pytest.approx([0.5, 0.2, 0.1])
    assert shares.host == pytest.approx(0.2)


def test_on_a_cpu_operators_that_make_a_batch_are_data() -> None:
    """Nested operators count once, those of other threads not at all; a collective counts where nothing is computed."""
    trace = [
        *spans(*MARKS, ("cpu_op", "aten::stack", 10, 20), ("cpu_op", "aten::linear", 40, 60)),
        *spans(("cpu_op", "aten::addmm", 45, 55), ("cpu_op", "autograd::engine::evaluate_function: X", 60, 70)),
        *spans(("cpu_op", "aten::copy_", 70, 100), ("user_annotation", "gloo:all_reduce", 50, 75), tid=9),
    ]
    shares = measure_shares(trace)
    assert shares is not None
    assert [shares.data, shares.device, shares.communication] == pytest.approx([0.3, 0.2, 0.15])


def test_trace_without_marks_has_no_shares() -> None:
    """An empty window divides nothing by nothing."""
    assert measure_shares(spans(("cpu_op", "aten::mm", 0, 1))) is None


def test_whole_percentages_add_up_to_a_hundred() -> None:
    """The largest remainders are rounded up."""
    text = render_shares(TimeShares(data=0.333, device=0.333, communication=0.0, host=0.334))
    assert text == "data 33 %, device 33 %, communication 0 %, host 34 %"
