"""A stopped and resumed run gives the same bits as an uninterrupted one, with every feature on."""

import itertools
import socket
import subprocess
from pathlib import Path

import pytest
import torch

from tests.trainer import harness, tiny_run
from tests.trainer.tiny_run import PASSES_PER_STEP, STEPS_PER_EPOCH

# 2 epochs of 22 steps; random shifts, dropout and batch norm are always on.
QUICK = (
    "epochs=2",
    "batch_size=64",
    "model.width=4",
    "log_every_steps=1",
    "checkpoint.every_steps=5",
    "onnx=false",
    "curves=false",
)
EVERYTHING = ("ema_decay=0.9", "compute.amp=fp16", "micro_batch=16", "workers=2")
EVERYTHING_OF_TWO = (*QUICK, *EVERYTHING, "workers=1")
# Half precision is slow on a CPU: the smallest network.
FEATURES = {
    "average": ("ema_decay=0.9",),
    "accumulation": ("micro_batch=16",),
    "bf16": ("compute.amp=bf16",),
    "scaler": ("compute.amp=fp16", "model.width=1"),
    # With fewer than 8 channels torch 2.13 corrupts memory in strided 1 x 1 convolutions, on CPUs without AVX-512.
    "recomputing": ("compute.gradient_checkpointing=on", "compute.channels_last=on", "model.width=8"),
    "sgd-one-cycle": ("optimizer.name=sgd", "schedule.name=one_cycle"),
    "everything": (*EVERYTHING, "model.width=1"),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_stopped_run_ends_with_the_same_bits(feature: str, tmp_path: Path) -> None:
    """Stopped in the first epoch, and again in the second; weights, EMA, loss scale and random states are equal."""
    settings = (*QUICK, *FEATURES[feature])
    assert harness.call(tmp_path / "whole", *settings) == 0
    cut = tmp_path / "cut"
    for looks in (9, STEPS_PER_EPOCH):
        assert harness.call(cut, *settings, stop=harness.StopAtLook(looks)) == 0
        assert harness.read_status(cut)["state"] == "stopped"
    assert harness.call(cut, *settings) == 0
    harness.assert_same_run(cut, tmp_path / "whole")


def test_loader_processes_change_nothing(tmp_path: Path) -> None:
    """0 workers up to a stop, 2 afterwards: the bits of a run with none."""
    assert harness.call(tmp_path / "whole", *QUICK) == 0
    assert harness.call(tmp_path / "cut", *QUICK, stop=harness.StopAtLook(12)) == 0
    assert harness.call(tmp_path / "cut", *QUICK, "workers=2") == 0
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")


@pytest.fixture(scope="session")
def everything_of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of a tiny network on two processes with every feature on; read-only."""
    folder = tmp_path_factory.mktemp("everything_of_two") / "output"
    whole = tiny_run.run(folder, *EVERYTHING_OF_TWO, processes=2)
    assert whole.code == 0, whole.err
    return folder


@pytest.mark.slow
def test_two_ranks_with_everything_on_end_with_the_same_bits(everything_of_two: Path, tmp_path: Path) -> None:
    """EMA, scaler, accumulation and a loader process on each of 2 ranks; SIGTERM to torchrun, later SIGKILL to all.

    SIGTERM checkpoints the step that the run stopped at; the third start ends as the uninterrupted run did.
    """
    cut = tmp_path / "cut"
    tiny_run.stop_kill_and_finish(cut, *EVERYTHING_OF_TWO)
    harness.assert_same_run(cut, everything_of_two)


@pytest.mark.slow
def test_loss_continues_after_a_change_of_the_number_of_processes(tmp_path: Path) -> None:
    """Started by one process, finished by two, without dropout: the same global batches, and a curve that continues.

    What differs is batch norm, which averages over a rank's share: each later loss within 15% of the uninterrupted
    run's, their mean within 5%.
    """
    settings = (*QUICK, "model.dropout=0", "checkpoint.every_steps=0")
    assert harness.call(tmp_path / "whole", *settings) == 0
    assert harness.call(tmp_path / "cut", *settings, stop=harness.StopAtLook(12)) == 0
    ended = harness.run(tmp_path / "cut", *settings, processes=2)
    assert ended.code == 0, ended.err
    assert "written by 1 processes, now 2: the same global batches follow" in ended.out
    ours, theirs = (
        torch.tensor([row["loss"] for row in harness.read_rows(tmp_path / name) if "val_loss" not in row])
        for name in ("cut", "whole")
    )
    assert len(ours) == len(theirs) == 2 * STEPS_PER_EPOCH
    assert torch.equal(ours[:11], theirs[:11])
    relative = ((ours - theirs) / theirs)[11:]
    assert relative.abs().max().item() < 0.15
    assert relative.mean().abs().item() < 0.05


@pytest.mark.slow
def test_two_machines_restart_when_one_loses_its_process(everything_of_two: Path, tmp_path: Path) -> None:
    """Two torchrun agents with a c10d rendezvous; one's process is killed: both restart, to the same bits."""
    folder = tmp_path / "output"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    agents = [_start_agent(folder, port, node) for node in range(2)]
    try:
        tiny_run.wait_until_held(folder, 12 * PASSES_PER_STEP, agents[0])
        held = [harness.rank_process_of(agent) for agent in agents]
        (last,) = (rank for rank in held if rank.environ()["RANK"] == "1")
        last.kill()
        results = [harness.finish(agent) for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                harness.kill_tree(agent)
                agent.communicate(timeout=harness.TIMEOUT_SECONDS)
    assert [result.code for result in results] == [0, 0], "\n".join(result.err for result in results)
    said = "".join(itertools.chain.from_iterable(result.out for result in results))
    assert "resumed from step" in said
    harness.assert_same_run(folder, everything_of_two)


def _start_agent(folder: Path, port: int, node: int) -> subprocess.Popen[str]:
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test"]
    # The first one hosts the rendezvous; its address is given, because a sandbox's own name may not resolve.
    rendezvous += ["--rdzv-conf", f"is_host={int(node == 0)}", "--local-addr", "127.0.0.1"]
    words = ["torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *rendezvous]
    words += [
        "--max-restarts",
        "2",
        *tiny_run.COMMAND,
        str(folder),
        str(12 * PASSES_PER_STEP),
        *EVERYTHING_OF_TWO,
        "workers=0",
    ]
    env = harness.plain_environ(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="5")
    return harness.start_python(words, env=env, cwd=folder.parent)
