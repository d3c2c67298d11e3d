"""torch.compile: the same training, resumed to the bit; without a compiler, training continues."""

import signal
from collections.abc import Sequence
from inspect import signature
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.support.box_cache import ALL
from tests.trainer import harness, tiny_run
from tests.trainer.learners import (
    CLASSES,
    COMPILER_WARNS,
    FEATURES,
    PlainNet,
    make_learner_of,
    random_batches,
    train_steps,
)
from trainer.base.sources import Batch
from trainer.step.compiling import Compiler

COMPILED = (
    "epochs=2",
    "batch_size=64",
    "log_every_steps=1",
    "checkpoint.every_steps=7",
    "onnx=false",
    "curves=false",
    "compute.compile=on",
)
EAGER = (*COMPILED, "compute.compile=off")
# Else each set of vector instructions is tried with a compilation, which takes longer than all kernels here.
ENVIRON = {"TORCHINDUCTOR_VEC_ISA_OK": "0", ALL: ""}
"""No vector kernels, and the tiny network, always: the compiler leaves the recipe's own alone below a DDP wrapper."""


def train(folder: Path, *settings: str, processes: int = 1, **environ: str) -> harness.Result:
    return tiny_run.run(folder, *settings, processes=processes, **ENVIRON, **environ)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compiled_run_learns_the_same_and_ends_with_the_same_bits_after_a_kill(tmp_path: Path) -> None:
    """A real compiler: with dropout, killed and resumed to the bit; without it, the first losses of an eager run."""
    cache = str(tmp_path / "cache")
    whole = train(tmp_path / "whole", *COMPILED, TORCHINDUCTOR_CACHE_DIR=cache)
    assert whole.code == 0, whole.err
    assert "torch.compile failed" not in whole.out
    assert any(Path(cache).rglob("*.so"))
    cut = tmp_path / "cut"
    process = tiny_run.start_held(cut, *COMPILED, hold_at=30, processes=1, TORCHINDUCTOR_CACHE_DIR=cache, **ENVIRON)
    process.kill()
    killed = harness.finish(process)
    assert killed.code == -signal.SIGKILL, killed.err
    ended = train(cut, *COMPILED, TORCHINDUCTOR_CACHE_DIR=cache)
    assert ended.code == 0, ended.err
    assert "resumed from step" in ended.out
    harness.assert_same_run(cut, tmp_path / "whole")
    plain = ("model.dropout=0", "epochs=1")
    assert train(tmp_path / "compiled", *COMPILED, *plain, TORCHINDUCTOR_CACHE_DIR=cache).code == 0
    assert train(tmp_path / "eager", *EAGER, *plain).code == 0
    ours, theirs = ([row["loss"] for row in harness.read_rows(tmp_path / name)[:20]] for name in ("compiled", "eager"))
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_training_continues_without_a_compiler_that_does_not_work(tmp_path: Path) -> None:
    """No C++ compiler: one message, and the same bits as without compiling."""
    compiler, cache = str(tmp_path / "no-such-compiler"), str(tmp_path / "cache")
    ended = train(tmp_path / "output", *COMPILED, CXX=compiler, TORCHINDUCTOR_CACHE_DIR=cache)
    assert ended.code == 0, ended.err
    assert ended.out.count("torch.compile failed: continuing without it") == 1
    assert train(tmp_path / "eager", *EAGER).code == 0
    harness.assert_same_run(tmp_path / "output", tmp_path / "eager")


@pytest.mark.slow
def test_two_ranks_continue_without_a_compiler_that_fails(tmp_path: Path) -> None:
    """No C++ compiler: each rank says so, and the bits are those of two ranks that never compiled."""
    compiler, cache = str(tmp_path / "no-such-compiler"), str(tmp_path / "cache")
    settings = (*COMPILED, "epochs=1")
    ended = train(tmp_path / "output", *settings, processes=2, CXX=compiler, TORCHINDUCTOR_CACHE_DIR=cache)
    assert ended.code == 0, ended.err
    assert "torch.compile failed: continuing without it" in ended.out
    assert "rank 1: torch.compile failed" in ended.err
    assert train(tmp_path / "eager", *EAGER, "epochs=1", processes=2).code == 0
    harness.assert_same_run(tmp_path / "output", tmp_path / "eager")


Graphs = list[torch.fx.GraphModule]
BY_BLOCKS = ("compute.gradient_checkpointing=on", "compute.compile=on")
BLOCKS = 9
"""More than torch compiles of one code object (8)."""


class Residual(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(FEATURES, width), nn.Dropout(dropout), nn.Linear(width, FEATURES))

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        sum_BF: torch.Tensor = values_BF + self.inner(values_BF)
        return sum_BF


class Deep(nn.Module):
    """Many blocks of one class, which torch has or not, and a layer before them: all of their inputs have gradients."""

    def __init__(self, widths: Sequence[int], rates: Sequence[float], *, is_torchs: bool = False) -> None:
        super().__init__()
        blocks = [Residual(width, rate) for width, rate in zip(widths, rates, strict=True)]
        self.first = nn.Linear(FEATURES, FEATURES)
        self.blocks = nn.ModuleList([block.inner for block in blocks] if is_torchs else blocks)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        values_BF = self.first(values_BF)
        for block in self.blocks:
            values_BF = block(values_BF)
        logits_BK: torch.Tensor = self.head(values_BF)
        return logits_BK


def train_and_validate(model: Deep) -> list[str]:
    """Return what was said."""
    said: list[str] = []
    learner = make_learner_of(BY_BLOCKS, model=model, said=said, changes={"blocks": list(model.blocks)})
    train_steps(learner, steps=2)
    learner.prepare_evaluation()
    with torch.no_grad():
        learner.call_evaluated(lambda model, batch: model(batch), next(random_batches())[0])
    return said


@COMPILER_WARNS
@pytest.mark.parametrize(("differs", "is_torchs"), [("widths", False), ("dropout", True)])
def test_all_blocks_of_one_class_are_compiled(differs: str, is_torchs: bool, compiled_graphs: Graphs) -> None:
    """Each once for training and once for validation, more than torch's limit for one piece of code."""
    widths = [4 + number if differs == "widths" else 4 for number in range(BLOCKS)]
    rates = [number / 20 if differs == "dropout" else 0.0 for number in range(BLOCKS)]
    said = train_and_validate(Deep(widths, rates, is_torchs=is_torchs))
    assert said == []
    assert len(compiled_graphs) == 2 * BLOCKS


@COMPILER_WARNS
def test_blocks_of_the_same_structure_are_compiled_once(compiled_graphs: Graphs) -> None:
    """A transformer's layers: one graph for training, one for validation."""
    assert train_and_validate(Deep([4] * BLOCKS, [0.1] * BLOCKS)) == []
    assert len(compiled_graphs) == 2


class Changing(PlainNet):
    """Is another function in each step."""

    steps = 0

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        return super().forward(values_BF * self.steps)


def loss_that_changes_the_model(model: nn.Module, batch: Batch) -> torch.Tensor:
    assert isinstance(model, Changing)
    model.steps += 1
    return functional.cross_entropy(model(batch[0]), batch[1])


@COMPILER_WARNS
def test_limit_of_the_compiler_is_reported_once(compiled_graphs: Graphs) -> None:
    """The compiler stops after 8 variants: one line says why the rest isn't compiled, and training goes on."""
    said: list[str] = []
    changes = {"loss": loss_that_changes_the_model}
    train_steps(make_learner_of(["compute.compile=on"], model=Changing(), said=said, changes=changes), steps=12)
    assert len(compiled_graphs) == 8
    (line,) = said
    assert line.startswith("torch.compile: the rest runs uncompiled, because torch._dynamo hit config.")
    assert "test_compiling.py" in line


class Method(PlainNet):
    def noise(self, values_BF: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.head(self.block(values_BF))
        return logits_BK


def loss_of_a_method(model: nn.Module, batch: Batch) -> torch.Tensor:
    assert isinstance(model, Method)
    return functional.cross_entropy(model.noise(batch[0]), batch[1])


@COMPILER_WARNS
@pytest.mark.parametrize("loss", [loss_of_a_method, None])
def test_loss_that_never_calls_the_model_is_told_that_nothing_is_compiled(
    loss: object, compiled_graphs: Graphs
) -> None:
    """After the first step, once; a loss that calls the model isn't told so."""
    said: list[str] = []
    changes = {"loss": loss} if loss else {}
    train_steps(make_learner_of(["compute.compile=on"], model=Method(), said=said, changes=changes), steps=3)
    assert len(compiled_graphs) == (0 if loss else 1)
    assert len(said) == (1 if loss else 0)
    assert all(line.startswith("compute.compile has no effect: ") for line in said)


@COMPILER_WARNS
def test_compiled_module_keeps_the_parameters_of_its_forward() -> None:
    """Libraries look at them: whether a model takes an attention mask, for example."""
    module = nn.Linear(2, 2)
    Compiler(print).compile(module)
    assert list(signature(module.forward).parameters) == ["input"]
