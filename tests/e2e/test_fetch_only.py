"""Not every checkpoint comes home: `fetch --only`, and `outputs` with wildcards."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

WRITES = """
    mkdir -p results $KEDGE_CHECKPOINT_DIR
    for n in 9 10; do head -c 300000 /dev/zero > $KEDGE_CHECKPOINT_DIR/step-$n.bin; done
    head -c 200000 /dev/zero > $KEDGE_CHECKPOINT_DIR/best-9.bin
    echo a > results/curves.png; head -c 100000 /dev/zero > results/big.npy
"""
JOB = """
    name: toy
    workdir: .
    run: sh write.sh
    outputs: [%s]
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0}
"""


def launch(laptop: Laptop, outputs: str) -> str:
    (laptop.home / "write.sh").write_text(WRITES)
    laptop.write_job(JOB % outputs)
    return str(laptop.json("launch", "--yes", "--detach", "--keep")["run"])


def await_end(laptop: Laptop) -> None:
    laptop.kedge("logs", "-f")


def come(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")}


def test_only_what_is_named_comes_and_a_later_fetch_brings_the_rest(laptop: Laptop) -> None:
    """What is left out is named with its size, before and after; what is there already isn't sent again."""
    run = launch(laptop, "results")
    await_end(laptop)
    folder = laptop.home / "some"
    (note,) = laptop.json("fetch", "--only", "best,curves", "--to", "some", "--dry-run")["notes"]
    assert note.startswith("to fetch: 2 files, 200 kB; not fetched, by --only best,curves: ")
    assert not folder.exists()
    said = laptop.kedge("fetch", "--only", "best,curves", "--to", "some")
    assert "fetch results, only best, curves, and verify the copy" in said
    assert said.index(note) < said.index("2 files, 200 kB, verified; not fetched, by --only best,curves: ")
    assert come(folder) == {"best-9.bin", "curves.png"}
    first = (folder / "checkpoints" / "best-9.bin").stat()
    laptop.kedge("fetch", "--only", "last", "--to", "some")
    assert come(folder) == {"best-9.bin", "curves.png", "step-10.bin"}
    said = laptop.kedge("fetch", "--to", "some", run)
    assert "not fetched" not in said
    assert come(folder) >= {"best-9.bin", "curves.png", "step-10.bin", "step-9.bin", "big.npy", "run.log"}
    assert (folder / "checkpoints" / "best-9.bin").stat().st_ino == first.st_ino
    laptop.kedge("fetch", "--only", "bset", "--to", "some", code=2)
    assert "no result is called bset" in laptop.errors


def test_outputs_with_wildcards_come_by_themselves_and_the_rest_when_it_is_asked_for(laptop: Laptop) -> None:
    """The plan says so; the end of the run says how much stays, and the store keeps it when the machine is gone."""
    run = launch(laptop, "'results/*.png'")
    await_end(laptop)
    assert any(
        note == "of results, only results/*.png is fetched; `kedge fetch --only all` brings the rest, any time later"
        for note in laptop.json("plan")["notes"]
    )
    assert laptop.json("plan")["takes"]["outputs"] == ["results/*.png"]
    said = laptop.kedge("teardown", "--yes")
    assert "not fetched, by the job's `outputs`: 1 file, 100 kB" in said
    folder = laptop.home / "kedge-results" / run
    assert come(folder) >= {"curves.png", "step-9.bin", "step-10.bin", "best-9.bin"}
    assert "big.npy" not in come(folder)
    laptop.kedge("fetch", run, "--only", "big*")
    assert (folder / "output" / "results" / "big.npy").stat().st_size == 100_000


def test_a_copy_from_the_store_takes_only_what_is_named(laptop: Laptop) -> None:
    """As one from the machine, with several modes each in its folder."""
    run = launch(laptop, "results")
    await_end(laptop)
    laptop.kedge("teardown", "--yes", "--no-fetch")
    said = laptop.kedge("fetch", run, "--only", "last", "--to", "some")
    assert "1 file" in said or "1 files" in said
    assert ", from the object store; not fetched, by --only last: " in said
    assert come(laptop.home / "some") == {"step-10.bin"}


OF_TRAINER = """
    for n in 08 09 10; do head -c 300000 /dev/zero > $KEDGE_CHECKPOINT_DIR/step-000000$n.safetensors; done
    head -c 200000 /dev/zero > $KEDGE_CHECKPOINT_DIR/best-00000009.safetensors
    exit %d
"""
STEPS = {f"step-000000{step}.safetensors" for step in ("08", "09", "10")}
NEWEST = {"step-00000010.safetensors", "best-00000009.safetensors"}


def launch_trainer(laptop: Laptop, code: int) -> str:
    """Launch a job that runs kedge's trainer, as far as its file tells."""
    (laptop.home / "write.sh").write_text(OF_TRAINER % code)
    laptop.write_job(
        JOB.replace("run: sh write.sh", "run: sh write.sh || exit 1; true || python -m trainer digits") % ""
    )
    run = str(laptop.json("launch", "--yes", "--detach", "--keep")["run"])
    laptop.kedge("logs", "-f", code=None)
    store = Results(FolderBucket(laptop.state / "store"))
    wait_until(lambda: {PurePosixPath(file.path).name for file in store.manifest(run)} >= STEPS)
    return run


def test_of_the_trainers_checkpoints_the_newest_and_the_best_come_and_the_store_keeps_the_rest(laptop: Laptop) -> None:
    """When it has succeeded: one line says how many stay and how to get them, also when the machine is gone."""
    run = launch_trainer(laptop, 0)
    (note,) = laptop.json("fetch", run, "--dry-run")["notes"]
    left = (
        "not fetched: 2 older checkpoints, 600 kB, which stay in the object store; `kedge fetch --only all` brings them"
    )
    assert note.endswith(left)
    said = laptop.kedge("teardown", "--yes")
    assert left in said
    folder = laptop.home / "kedge-results" / run / "checkpoints"
    assert come(folder) == NEWEST
    laptop.kedge("fetch", run, "--to", "other")
    assert come(laptop.home / "other" / "checkpoints") == NEWEST
    laptop.kedge("fetch", run, "--only", "all")
    assert come(folder) == STEPS | NEWEST


def test_all_checkpoints_come_of_a_run_that_has_not_succeeded(laptop: Laptop) -> None:
    """Which one is of use isn't known then."""
    run = launch_trainer(laptop, 1)
    assert "older checkpoints" not in laptop.kedge("fetch", run)
    assert come(laptop.home / "kedge-results" / run / "checkpoints") == STEPS | NEWEST
