"""The job file docs/examples/skull-dual.yaml: two trainings share eight GPUs, and a task follows one of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.laptop import Laptop

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "skull-dual.yaml"
TRAIN = """
import os, pathlib, sys

name, epochs = pathlib.Path(__file__).stem, int(os.environ["EPOCHS"])
pathlib.Path("checkpoints").mkdir(exist_ok=True)
resumed = sys.argv[1:] and pathlib.Path(sys.argv[2]).name
print(f"{name}: batch {os.environ['BATCH']}, resumed from {resumed}", flush=True)
done = int(pathlib.Path(sys.argv[2]).read_text()) if resumed else 0
for epoch in range(done + 1, epochs + 1):
    pathlib.Path(f"checkpoints/epoch_{epoch}.pth").write_text(str(epoch))
    if name == "train_pcdiff" and not resumed and epoch == 2:
        sys.exit(1)
"""
SAMPLE = "import pathlib; pathlib.Path('syn').mkdir(exist_ok=True); pathlib.Path('syn/epoch_3.txt').write_text('syn')"


@pytest.fixture
def project(laptop: Laptop) -> Laptop:
    """A computer with the example's programs, tiny, and its data set."""
    shutil.copy(EXAMPLE, laptop.home / EXAMPLE.name)
    for name, text in (("train_pcdiff", TRAIN), ("train_voxel", TRAIN), ("sample", SAMPLE)):
        (laptop.home / f"{name}.py").write_text(text)
    (laptop.home / "skullbreak").mkdir()
    (laptop.home / "skullbreak" / "skull.txt").write_text("bone")
    return laptop


def test_both_trainings_are_planned_with_their_own_gpus(project: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, within budget and deadline; in turn, one waits for the other."""
    # Nobody is signed in: the prices are those of the snapshot.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "KEDGE_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    files = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), str(project.home / "nothing"))
    project.extra_env |= {**files, "AWS_EC2_METADATA_DISABLED": "true"}
    said = project.kedge("plan", "--job", EXAMPLE.name)
    assert "task pcdiff (GPUs 0-6, results in checkpoints): torchrun --nproc-per-node 7" in said
    assert "task voxel (GPU 7, results in checkpoints): python3 train_voxel.py" in said
    assert "task samples (GPU 0, after pcdiff, results in syn): python3 sample.py" in said
    assert "p4de.24xlarge, a100-80gb:8 at $" in said
    assert "expected 1d 20h" in said
    in_turn = project.kedge("plan", "--job", EXAMPLE.name, "--mode", "in-turn")
    assert "task voxel (GPU 7, after pcdiff, results in checkpoints): python3 train_voxel.py" in in_turn
    assert "expected 2d 7h" in in_turn


def test_the_rehearsal_runs_all_three_tasks(project: Laptop) -> None:
    """One waits for the other; the first fails once and resumes; each has its own checkpoints, log and results."""
    said = project.kedge("launch", "--job", EXAMPLE.name, "--mode", "rehearse", "--yes", "--price", "1")
    assert "train_pcdiff: batch 2, resumed from epoch_2.pth" in said
    assert said.index("train_pcdiff: batch 2") < said.index("train_voxel: batch 1, resumed from")
    (home,) = (project.home / "kedge-results").glob("skull-dual-*")
    names = {
        task: sorted(path.name for path in (home / task / "checkpoints").iterdir()) for task in ("pcdiff", "voxel")
    }
    assert names == {
        "pcdiff": ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"],
        "voxel": ["epoch_1.pth", "epoch_2.pth"],
    }
    assert (home / "samples" / "output" / "syn" / "epoch_3.txt").read_text() == "syn"
    assert project.processes() == []
