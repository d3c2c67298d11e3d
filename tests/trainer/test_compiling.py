"""torch.compile: the same training, resumed to the bit; without a compiler, training continues."""

import signal
from pathlib import Path

import pytest

from tests.support.box_cache import ALL
from tests.trainer import harness, tiny_run

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
