"""Gradient checkpointing beside deep copies, the compiler and the count of operations."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainer import harness
from tests.trainer.learners import (
    COMPILER_WARNS,
    FEATURES,
    PlainNet,
    SmallNet,
    make_learner_of,
    mean_loss,
    random_batches,
    seeded,
    train_steps,
)
from trainer.base.config import TrackSettings
from trainer.base.recipe import BuiltWorkload
from trainer.data.sources import ArraySource
from trainer.report.rows import make_meter
from trainer.step.recompute import recompute_blocks

# Shape legend: B batch, F features, K classes.
CPU = torch.device("cpu")
ONE_EPOCH = ("epochs=1", "batch_size=64", "model.width=6", "curves=false", "onnx=false", "track.peak_tflops=1")


def test_copy_of_a_recomputing_model_is_a_model_of_its_own() -> None:
    """The copy's running statistics count each batch once, and the original's not at all; names stay the same."""
    plain, original = seeded(SmallNet), seeded(SmallNet)
    assert isinstance(original, SmallNet)
    recompute_blocks([original.block])
    assert list(original.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in original.named_parameters()] == [name for name, _ in plain.named_parameters()]
    copied = copy.deepcopy(original)
    before = harness.copy_state(dict(original.state_dict()))
    values_BF, _ = next(random_batches())
    for model in (plain, copied):
        torch.manual_seed(1)
        model(values_BF).sum().backward()
    harness.assert_equal(dict(copied.state_dict()), dict(plain.state_dict()), "copy")
    harness.assert_equal(dict(original.state_dict()), before, "original")
    for ours, theirs in zip(copied.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]  # backward has set both


def test_run_that_recomputes_shows_its_mfu(tmp_path: Path) -> None:
    """Operations are counted before the blocks are changed, so the figure is that of the same run without."""
    settings = (*ONE_EPOCH, "compute.gradient_checkpointing=on", "ema_decay=0.9")
    assert harness.call(tmp_path / "output", *settings) == 0
    assert all(row["mfu"] > 0 for row in harness.read_rows(tmp_path / "output") if "loss" in row)


class NotCountable(PlainNet):
    """Looks at values, which the meta device hasn't."""

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        return super().forward(values_BF * values_BF.abs().max().item())


class NotCopyable(PlainNet):
    def __deepcopy__(self, _memo: Any) -> "NotCopyable":
        raise RuntimeError("can't be copied")


@pytest.mark.parametrize("net", [NotCountable, NotCopyable])
def test_model_that_can_not_be_counted_gets_a_message_and_no_mfu(net: type[nn.Module]) -> None:
    """A figure is no reason to end a run."""
    said: list[str] = []
    source = ArraySource(np.zeros((2, FEATURES)))
    workload = BuiltWorkload(
        model=net(),
        train_data=source,
        validation_data=source,
        loss=mean_loss,
        export_inputs=(torch.zeros(2, FEATURES),),
    )
    meter = make_meter(workload, TrackSettings(peak_tflops=1.0), CPU, batch_size=2, devices=1, say=said.append)
    assert meter.flops_per_sample is None
    assert len(said) == 1
    assert said[0].startswith("no MFU, because the model's operations can't be counted: ")


@COMPILER_WARNS
def test_recomputed_blocks_are_really_compiled(compiled_graphs: list[torch.fx.GraphModule]) -> None:
    """The block is one graph, computed twice a step; weights, statistics and dropout are as without both."""
    settings = ["compute.gradient_checkpointing=on", "compute.compile=on"]
    plain = train_steps(make_learner_of(model=seeded(SmallNet)), steps=2)
    assert not compiled_graphs
    net = seeded(SmallNet)
    assert isinstance(net, SmallNet)
    calls: list[bool] = []
    net.block.register_forward_pre_hook(lambda *_: calls.append(True))
    both = train_steps(make_learner_of(settings, model=net), steps=2)
    assert len(compiled_graphs) == 1
    assert len(calls) == 4
    for name, value in plain.items():
        torch.testing.assert_close(both[name], value, rtol=1e-5, atol=1e-6)


@COMPILER_WARNS
def test_validation_is_compiled_and_copies_are_models_of_their_own(compiled_graphs: list[torch.fx.GraphModule]) -> None:
    """The EMA's graph is compiled beside the model's, and computes with the EMA's weights."""
    learner = make_learner_of(["compute.compile=on", "ema_decay=0.5"], model=seeded(PlainNet))
    train_steps(learner, steps=2)
    trained = len(compiled_graphs)
    values_BF = torch.ones(2, FEATURES)
    learner.prepare_evaluation()
    with torch.no_grad():
        found = learner.call_evaluated(lambda model, batch: model(batch), values_BF)
    assert len(compiled_graphs) > trained > 0
    plain = PlainNet()
    plain.load_state_dict(learner.evaluated.state_dict())
    torch.testing.assert_close(found, plain(values_BF))
