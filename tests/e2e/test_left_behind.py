"""A script that saves files outside its outputs keeps them, and its user is told so."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.e2e.runs import state
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

MNIST = """
    name: mnist
    workdir: .
    run: python main.py
    outputs: [results]
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, grace: 5s}
"""
SAVES_BESIDE_ITSELF = """
import pathlib
pathlib.Path("mnist_cnn.pt").write_bytes(b"weights" * 1000)
"""


def test_a_model_saved_beside_the_script_is_fetched_and_reported(laptop: Laptop) -> None:
    """As in the MNIST example: no output folder, a file in the working folder, and a run that succeeds."""
    laptop.write_job(MNIST)
    (laptop.home / "main.py").write_text(SAVES_BESIDE_ITSELF)
    said = laptop.kedge("launch", "--yes")
    (results,) = (laptop.home / "kedge-results").glob("mnist-*")
    assert (results / "left-behind" / "mnist_cnn.pt").read_bytes() == b"weights" * 1000
    assert "1 file was written outside `outputs` (7.0 kB)." in said
    assert f"Kept in kedge-results/{results.name}/left-behind:\n    mnist_cnn.pt (7.0 kB)" in said
    # The advice is about the file that was left, not about the folder that stayed empty.
    advice = "  To get such files as results, list their folder under `outputs`.\n"
    assert f"(7.0 kB)\n{advice}Nothing was written to results, which `outputs` names.\n" in said
    # From the store, when the machine is gone.
    again = laptop.kedge("fetch", results.name, "--to", "again")
    assert "mnist_cnn.pt (7.0 kB)" in again
    assert (laptop.home / "again" / "left-behind" / "mnist_cnn.pt").read_bytes() == b"weights" * 1000


def test_empty_outputs_are_not_reported_while_the_command_runs(laptop: Laptop) -> None:
    """They were empty when it was stopped; it has been started again, and may still write them."""
    laptop.write_job(MNIST)
    (laptop.home / "main.py").write_text("import time\ntime.sleep(1000)\n")
    laptop.kedge("launch", "--detach", "--yes")
    wait_until(lambda: state(laptop) == "running")
    laptop.kedge("stop")
    assert "Nothing was written to results" in laptop.kedge("fetch")
    laptop.kedge("start")
    assert "Nothing was written" not in laptop.kedge("fetch")
    assert "Nothing was written to results" in laptop.kedge("teardown", "--yes")


def test_the_working_folder_stays_until_the_next_launch(laptop: Laptop) -> None:
    """No process runs, and no command finds a machine; the folder is where the launch said, and is then deleted."""
    laptop.write_job(MNIST)
    (laptop.home / "main.py").write_text(SAVES_BESIDE_ITSELF)
    said = laptop.kedge("launch", "--yes")
    (run,) = (record["run"] for record in laptop.json("status", "--all"))
    stays = laptop.state / "ended" / f"{run}-m1"
    assert f"kept until the next local launch: the folder that the command ran in, {stays}" in said
    assert sorted(path.name for path in stays.iterdir()) == ["kedge.yaml", "main.py", "mnist_cnn.pt", "train.py"]
    assert laptop.processes() == []
    assert list((laptop.state / "machines").iterdir()) == []
    assert laptop.json("status") == []
    assert "Nothing bills" in laptop.kedge("reap", "--yes", "--provider", "local")
    laptop.kedge("launch", "--yes")
    assert not stays.exists()


def test_a_plan_says_what_happens_to_files_outside_the_outputs(laptop: Laptop) -> None:
    """Before anything is paid for."""
    laptop.write_job(MNIST.replace("outputs: [results]", ""))
    (laptop.home / "main.py").write_text(SAVES_BESIDE_ITSELF)
    said = " ".join(laptop.kedge("plan").split())
    assert "no `outputs`" in said
    assert "up to 1.0 GB" in said
    laptop.write_job(MNIST.replace("outputs: [results]", "left_behind: 0"))
    assert "are lost" in " ".join(laptop.kedge("plan").split())


def test_with_left_behind_0_nothing_is_kept_or_reported(laptop: Laptop, tmp_path: Path) -> None:
    """For a job that deliberately writes much outside its outputs."""
    laptop.write_job(MNIST.replace("outputs: [results]", "left_behind: 0"))
    (laptop.home / "main.py").write_text(SAVES_BESIDE_ITSELF)
    said = laptop.kedge("launch", "--yes")
    assert "outside" not in said
    assert not list((laptop.home / "kedge-results").glob("*/left-behind*"))


def test_a_plan_names_the_data_that_git_ignores(laptop: Laptop) -> None:
    """As in nanoGPT: `data/train.bin` exists at home, git ignores it, and the machine doesn't get it."""
    laptop.write_job(MNIST)
    (laptop.home / "main.py").write_text(SAVES_BESIDE_ITSELF)
    (laptop.home / "data").mkdir()
    (laptop.home / "data" / "train.bin").write_bytes(b"\0" * 9_000_000)
    (laptop.home / ".gitignore").write_text("*.bin\n")
    subprocess.run(["git", "init", "-q"], cwd=laptop.home, check=True)
    assert "not sent (see `data`): 1 file, 9.0 MB, ignored by git\n    data/ (9.0 MB)\n" in laptop.kedge("plan")
    unsent = laptop.json("plan")["unsent"]
    assert (unsent["files"], unsent["by"], unsent["paths"][0]["path"]) == (1, "git", "data/")
    laptop.write_job(MNIST + "    data: {data: data}\n")
    assert "not sent" not in laptop.kedge("plan")
