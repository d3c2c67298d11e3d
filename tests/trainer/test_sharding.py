"""Sharded runs train the same as others, and lose nothing."""

import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.support.box_cache import ALL
from tests.trainer import divided_run, harness, tiny_run
from tests.trainer.tiny_run import PASSES_PER_STEP, STEPS_PER_EPOCH
from trainer.base.config import ComputeSettings, Settings
from trainer.base.errors import BadRequestError
from trainer.checkpoints.loading import load
from trainer.group.distributed import ALONE, ProcessGroup
from trainer.step.assembly import check_settings

# 2 epochs of 22 steps; random shifts, dropout and batch norm are always on. Blocks are all-gathered one by one.
DIVIDED = (
    "epochs=2",
    "batch_size=64",
    "model.width=4",
    "log_every_steps=1",
    "checkpoint.every_steps=5",
    "checkpoint.every_seconds=0",
    "onnx=false",
    "curves=false",
    "compute.fully_shard=on",
)
FEATURES = ("ema_decay=0.9", "compute.amp=bf16", "micro_batch=16", "compute.gradient_checkpointing=on", "workers=1")
WITH_FEATURES = (*DIVIDED, *FEATURES)
# Without each process's own randomness, and with a batch that 2 and 3 divide: 28 steps in all.
COMPARABLE = ("model.dropout=0", "batch_size=96", "checkpoint.every_steps=8", "checkpoint.keep=9")


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of two; read-only like the others."""
    folder = tmp_path_factory.mktemp("divided") / "output"
    ended = harness.run(folder, *DIVIDED, processes=2)
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture(scope="session")
def whole_run_with_features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a tiny network, with every feature of a step."""
    return run_tiny(tmp_path_factory, WITH_FEATURES)


@pytest.fixture(scope="session")
def comparable_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network's run whose losses don't depend on the number of processes."""
    return run_tiny(tmp_path_factory, (*DIVIDED, *COMPARABLE))


def run_tiny(tmp_path_factory: pytest.TempPathFactory, settings: tuple[str, ...]) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "output"
    ended = tiny_run.run(folder, *settings, processes=2)
    assert ended.code == 0, ended.err
    return folder


def losses(folder: Path) -> torch.Tensor:
    return torch.tensor([row["loss"] for row in harness.read_rows(folder) if "val_loss" not in row])


@pytest.mark.slow
def test_sharded_model_learns_the_same_as_a_replicated_one(whole_run: Path, tmp_path: Path) -> None:
    """The losses of DistributedDataParallel up to rounding: 1% in the first epoch; best weights and results are whole.

    Each process's shard has about half of each tensor, and the results are one file under the model's names.
    """
    ended = harness.run(tmp_path / "output", *DIVIDED, "compute.fully_shard=off", processes=2)
    assert ended.code == 0, ended.err
    ours, theirs = losses(whole_run), losses(tmp_path / "output")
    torch.testing.assert_close(ours[:STEPS_PER_EPOCH], theirs[:STEPS_PER_EPOCH], rtol=0.01, atol=0)
    best = load(harness.best_checkpoint(whole_run), ALONE)
    harness.assert_equal(load_file(whole_run / "model.safetensors"), best["model"], "results")
    first, second = (load_file(path) for path in sorted(harness.newest_checkpoint(whole_run).glob("*.safetensors")))
    assert len(second) == 3 * len(best["model"].keys() & second.keys()) > 0  # weights, and AdamW's two moments
    for name, rows in second.items():
        assert len(first[name]) - len(rows) in (0, 1), name


@pytest.mark.slow
def test_sharded_run_ends_with_the_same_bits_after_a_stop_and_a_kill(
    whole_run_with_features: Path, tmp_path: Path
) -> None:
    """EMA, bf16, accumulation, recomputing and a loader process on each of two ranks; SIGTERM, later SIGKILL to all."""
    cut = tmp_path / "cut"
    tiny_run.stop_kill_and_finish(cut, *WITH_FEATURES)
    harness.assert_same_run(cut, whole_run_with_features)


@pytest.mark.slow
def test_sharded_run_that_is_killed_repeatedly_always_resumes(whole_run: Path, tmp_path: Path) -> None:
    """A checkpoint after every step, SIGKILL to all at random moments: the newest is readable each time."""
    folder, chance = tmp_path / "output", random.Random(20_261_121)
    settings, done = (*DIVIDED, "checkpoint.every_steps=1"), 0
    for kills, step in enumerate((5, 12, 20, 30)):
        hold_at = step + chance.randrange(5) - done
        # With the recipe's own network. The checkpoint of the step before is being written.
        process = tiny_run.start_held(folder, *settings, hold_at=hold_at, processes=2, **{ALL: "1"})
        time.sleep(chance.random() * 0.05)
        harness.kill_tree(process)
        ended = harness.finish(process)
        done = int(harness.newest_checkpoint(folder).name.removeprefix("step-"))
        assert kills == 0 or "resumed from step" in ended.out
        assert "set aside" not in ended.out
    last = harness.run(folder, *settings, processes=2)
    assert last.code == 0, last.err
    harness.assert_same_run(folder, whole_run)


CHANGES = {
    "2 divided, then 3": (3, DIVIDED),
    "2 divided, then 1": (1, DIVIDED),
    "2 divided, then 2 whole": (2, (*DIVIDED, "compute.fully_shard=off")),
    "1 whole, then 2 divided": (2, DIVIDED),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_loss_continues_after_a_change_of_the_sharding(change: str, comparable_run: Path, tmp_path: Path) -> None:
    """The same global batches follow, without dropout: each later loss within 15% of the run of two, the mean 5%.

    What differs is batch norm, which averages over a rank's share.
    """
    end, settings = CHANGES[change]
    cut = tmp_path / "cut"
    if change.startswith("2"):
        shutil.copytree(comparable_run, cut)
        for later in {*(cut / "checkpoints").iterdir()} - {cut / "checkpoints" / "step-00000008"}:
            shutil.rmtree(later) if later.is_dir() else later.unlink()
    else:
        process = tiny_run.start_held(cut, *DIVIDED, *COMPARABLE, hold_at=8)
        process.send_signal(signal.SIGTERM)
        assert harness.finish(process).code == 0
    stopped_at = int(harness.newest_checkpoint(cut).name[5:13])
    ended = tiny_run.run(cut, *settings, *COMPARABLE, processes=end)
    assert ended.code == 0, ended.err
    assert f"resumed from step {stopped_at}" in ended.out
    ours, theirs = losses(cut), losses(comparable_run)
    assert len(ours) == len(theirs)
    relative = ((ours - theirs) / theirs)[stopped_at:]
    assert relative.abs().max().item() < 0.15
    assert relative.mean().abs().item() < 0.05


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_machines_without_a_shared_disk_restart_in_any_order(whole_run_with_features: Path, tmp_path: Path) -> None:
    """Each has its own shard and the index. Their process is killed, both restart; then they change places.

    The uploads of both to one place are a whole checkpoint, which one process can read. On spot machines each keeps
    the other's shard too: one is replaced by an empty machine, and the run goes on.
    """
    disks = [tmp_path / "a", tmp_path / "b"]
    _run_on_machines(disks, WITH_FEATURES, hold_at=12 * PASSES_PER_STEP)
    for rank, disk in enumerate(disks):
        assert _held(disk) == [f"{rank}-of-2.", "index.j"]
    assert len({max((disk / "checkpoints").glob("step-*")).name for disk in disks}) == 1
    for disk in disks:
        shutil.copytree(disk / "checkpoints", tmp_path / "shipped", dirs_exist_ok=True)
    ours = load(tmp_path / "shipped" / f"step-{2 * STEPS_PER_EPOCH:08d}", ALONE)
    harness.assert_equal(ours, load(harness.newest_checkpoint(whole_run_with_features), ALONE), "shipped")
    _run_on_machines(disks[::-1], (*WITH_FEATURES, "epochs=3"))
    assert {max((disk / "checkpoints").glob("step-*")).name for disk in disks} == {f"step-{3 * STEPS_PER_EPOCH:08d}"}
    _run_on_machines(disks, (*WITH_FEATURES, "epochs=4", "checkpoint.replicas=none"), KEDGE_EXPECTED_LIFE_HOURS="1000")
    assert [_held(disk) for disk in disks] == [["0-of-2.", "1-of-2.", "index.j"]] * 2
    shutil.rmtree(disks[0])
    _run_on_machines(disks, (*WITH_FEATURES, "epochs=5", "checkpoint.replicas=0"))
    assert {max((disk / "checkpoints").glob("step-*")).name for disk in disks} == {f"step-{5 * STEPS_PER_EPOCH:08d}"}


def _held(disk: Path) -> list[str]:
    return sorted(path.name[:7] for path in max((disk / "checkpoints").glob("step-*")).iterdir())


def _run_on_machines(disks: list[Path], settings: tuple[str, ...], *, hold_at: int = 0, **environ: str) -> None:
    """Train on two machines, each with its own output folder; kill the second's process once, where it holds."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    agents = [_start_agent(disk, settings, port, node, hold_at, environ) for node, disk in enumerate(disks)]
    try:
        if hold_at:
            tiny_run.wait_until_held(disks[1], hold_at, agents[1])
            harness.rank_process_of(agents[1]).kill()
        results = [harness.finish(agent) for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                harness.kill_tree(agent)
                agent.communicate(timeout=harness.TIMEOUT_SECONDS)
    assert [result.code for result in results] == [0, 0], "\n".join(result.err for result in results)
    assert "resumed from step" in results[0].out


def _start_agent(
    disk: Path, settings: tuple[str, ...], port: int, node: int, hold_at: int, environ: dict[str, str]
) -> subprocess.Popen[str]:
    # A fixed place for each machine: the first one's process is rank 0.
    words = ["torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    words += ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port), "--max-restarts", "2"]
    # Without loader processes: one that outlives a killed rank keeps the rank's connections for seconds.
    words += [*tiny_run.COMMAND, str(disk), str(hold_at), *settings, "workers=0"]
    return harness.start_python(words, env=harness.plain_environ(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="5", **environ))


@pytest.mark.slow
def test_process_without_a_validation_sample_computes_with_the_others(tmp_path: Path) -> None:
    """Three samples for two processes: the second has none left, but its rows are still needed.

    A network without blocks is all-gathered at once, with a message; the EMA is sharded too, and validated in that
    form: no save in between all-gathers it again.
    """
    settings = ("0", "ema_decay=0.5", "epochs=4", "checkpoint.every_epochs=0")
    divided = (*settings, "compute.fully_shard=on")
    ended = harness.run_script(divided_run.__file__, str(tmp_path / "o"), *divided, processes=2)
    assert ended.code == 0, ended.err
    assert "the recipe has no blocks" in ended.out
    rows = [row for row in harness.read_rows(tmp_path / "o") if "val_loss" in row]
    assert len(rows) == 4
    alone = harness.run_script(divided_run.__file__, str(tmp_path / "p"), *settings, processes=1)
    assert alone.code == 0, alone.err
    theirs = [row["val_loss"] for row in harness.read_rows(tmp_path / "p") if "val_loss" in row]
    assert [row["val_loss"] for row in rows] == pytest.approx(theirs, rel=1e-3)


@pytest.mark.slow
def test_loss_scale_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    """With fp16 each process would reach its own loss scale."""
    ended = harness.run(tmp_path / "output", *DIVIDED, "compute.amp=fp16", processes=2)
    assert "compute.fully_shard does not work with compute.amp=fp16" in ended.err
    assert "error: " in ended.err
    assert not (tmp_path / "output").exists()


def test_model_with_a_scalar_parameter_is_refused() -> None:
    """A scalar has no rows to shard; without sharding it is allowed."""
    model = nn.Module()
    model.scale = nn.Parameter(torch.tensor(1.0))
    settings = Settings(compute=ComputeSettings(fully_shard=True))
    check_settings(settings, model, ALONE)
    with pytest.raises(BadRequestError, match="does not work with this model") as refused:
        check_settings(settings, model, ProcessGroup(rank=0, size=2, device=torch.device("cpu")))
    assert "scale" in refused.value.why


def test_one_process_has_nothing_to_shard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The setting changes no bit of its run, its checkpoints stay files, and a line says so."""
    assert harness.call(tmp_path / "plain", *DIVIDED, "compute.fully_shard=off", "epochs=1") == 0
    assert "fully_shard ignored" not in capsys.readouterr().out
    assert harness.call(tmp_path / "divided", *DIVIDED, "epochs=1", "compute.amp=off") == 0
    assert "fully_shard ignored: there is one process" in capsys.readouterr().out
    harness.assert_same_run(tmp_path / "divided", tmp_path / "plain")
    assert harness.newest_checkpoint(tmp_path / "divided").suffix == ".safetensors"
