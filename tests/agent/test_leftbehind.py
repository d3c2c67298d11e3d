"""What a command wrote into its working folder: which files are kept, and what is reported about the others."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base.state import RunState
from orchestrator.agent.base.wire import Command
from orchestrator.agent.code.links import link_data, link_results
from orchestrator.agent.results.left_behind import time_to_keep
from orchestrator.agent.results.upload import Uploader, blob_key, read_manifest
from orchestrator.agent.s3.store import FolderStore
from tests.agent.box import Box, wait_for
from tests.agent.configs import run_config
from tests.agent.trees import receive
from tests.agent.working_folders import Machine


@pytest.mark.parametrize(("end", "state"), [("exit 3", "failed"), ("sleep 600", "stopped")])
def test_a_command_that_fails_or_is_stopped_loses_nothing_either(box: Box, end: str, state: str) -> None:
    """When the run is over, the file is there, and the log has reported it before the end."""
    box.start(f"echo weights > model.pt; touch ready; {end}", grace=1.0)
    if state == "stopped":
        wait_for((box.root / "code" / "ready").exists)
        box.ask("stop")
    box.await_state(state)
    assert (box.root / "results" / "left-behind" / "model.pt").read_text() == "weights\n"
    log = box.log()
    assert log.index("2 files were written outside `outputs`: kept in left-behind/") < log.index(f"] {state}")


def test_an_attempts_files_are_kept_before_the_next_one_runs_on_other_code(box: Box) -> None:
    """`sync-code` while a command fails: its folder is deleted when the next code arrives."""
    fails = b'until [ -e "$KEDGE_NOTICE_FILE" ]; do sleep 0.05; done; exit 1'
    receive(box, "hash0001", {"run.sh": b"echo first > first.pt; touch ready; " + fails})
    box.start("bash run.sh", restarts=1, restart_after=0.5)
    wait_for((box.root / "code" / "ready").exists)
    receive(box, "hash0002", {"run.sh": b"echo second > second.pt"})
    box.call("notice", "fail")
    box.await_state("succeeded")
    kept = box.root / "results" / "left-behind"
    assert sorted(path.name for path in kept.iterdir()) == ["first.pt", "ready", "second.pt"]


def test_a_command_that_has_succeeded_is_not_started_again_while_files_are_kept(box: Box) -> None:
    """The runner may be killed, or the power fail, in these seconds: training again would cost hours."""
    file = box.root / "state.json"
    box.start("echo ran; for i in $(seq 900); do echo weights > $i.pt; done", restarts=1)
    # Copying takes long enough for the test to see it.
    written = wait_for(lambda: found if (found := json.loads(file.read_text()))["command"]["exit_code"] == 0 else None)
    assert written["command"]["state"] == "running"
    box.await_state("succeeded")
    file.write_text(json.dumps(written))
    assert box.command()["state"] == "succeeded"
    box.begin("run").wait()
    assert json.loads(file.read_text())["command"]["state"] == "succeeded"
    assert box.log().count(" ran\n") == 1


class CutStore(FolderStore):
    """A store whose machine dies when it uploads one of the contents."""

    def __init__(self, folder: Path, *, at: str) -> None:
        super().__init__(folder)
        self._at = at

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        if key == self._at:
            raise OSError("the machine has ended")
        super().put(key, chunks)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def test_new_files_and_changed_code_are_kept_but_unchanged_code_is_not(machine: Machine) -> None:
    """A script that edits its own configuration has made a result, too."""
    machine.write("out/model.pt", "weights")
    machine.write("lib/model.py", "layers = 12")
    said = machine.end()
    assert machine.kept == {"out/model.pt": "weights", "lib/model.py": "layers = 12"}
    assert (said["files"], said["kept"], said["bytes"]) == (2, 2, 18)
    assert said["is_whole"]


def test_a_command_that_leaves_nothing_behind_makes_no_file(machine: Machine) -> None:
    """The results of a job that writes only where it should are unchanged."""
    machine.write("__pycache__/train.cpython-313.pyc", "bytecode")
    assert machine.end() == {}
    assert sorted(path.name for path in machine.layout.results.iterdir()) == ["checkpoints", "output"]


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "sub/.git/hooks/post-checkout",
        "venv/pyvenv.cfg",
        "myenv/conda-meta/history",
        ".venv/bin/python",
        "web/node_modules/left-pad/index.js",
        ".cache/huggingface/blob",
        "kernels/CACHEDIR.TAG",
        "lib/__pycache__/model.pyc",
        "tool.egg-info/PKG-INFO",
    ],
)
def test_environments_caches_and_repositories_are_left_out(machine: Machine, path: str) -> None:
    """Wherever they are; an environment is recognised by its content, whatever its name."""
    machine.write(path, "litter")
    machine.write(f"{Path(path).parent}/deeper/file", "litter")
    assert machine.end() == {}


def test_outputs_checkpoints_and_data_are_not_left_behind_and_empty_outputs_are_named(machine: Machine) -> None:
    """They are links in the working folder; an output with only empty folders counts as empty, too."""
    config: dict[str, Any] = {"outputs": ("results", "figures/"), "checkpoints": "ckpt", "data": ("data/digits",)}
    run = run_config(**config)
    link_data(machine.layout, run, machine.release)
    link_results(machine.task, run.tasks[0], machine.release)
    (machine.layout.data / "data/digits").mkdir(parents=True)
    machine.write("results/model.txt", "a result")
    machine.write("data/digits/index.txt", "downloaded data")
    (machine.release / "figures" / "of-today").mkdir()
    said = machine.end(**config)
    assert (said["files"], said["empty"]) == (0, ["figures/", "ckpt"])
    assert machine.kept == {}


def test_a_machine_that_is_not_the_head_names_no_empty_output(tmp_path: Path) -> None:
    """Often only the head writes results; what a machine lists stands for the whole run if the head lists nothing."""
    machine = Machine(tmp_path, rank=1)
    assert machine.end(outputs=("results",), checkpoints="ckpt") == {}


def test_the_newest_are_kept_up_to_the_limit_and_the_rest_is_listed(machine: Machine) -> None:
    """A model is written last; the downloads before it are left out."""
    machine.write("download.bin", "d" * 600, age=3000)
    machine.write("model.pt", "m" * 500)
    machine.write("metrics.csv", "c" * 100, age=10)
    said = machine.end(left_behind=1000)
    assert set(machine.kept) == {"model.pt", "metrics.csv"}
    assert (said["files"], said["bytes"], said["kept"], said["kept_bytes"]) == (3, 1200, 2, 600)
    assert [(each["path"], bool(each["left_out"])) for each in said["named"]] == [
        ("model.pt", False),
        ("metrics.csv", False),
        ("download.bin", True),
    ]


def test_without_a_store_less_is_kept(tmp_path: Path) -> None:
    """The limit is 100 MB over SSH, a gigabyte over the store: a sparse file of 200 MB is kept only over the store."""
    kept = []
    for name, url in (("with", (tmp_path / "store").as_uri()), ("without", "")):
        machine = Machine(tmp_path / name, store_url=url)
        with (machine.release / "model.pt").open("wb") as file:
            file.truncate(200_000_000)
        kept.append(machine.end()["kept"])
    assert kept == [1, 0]


def test_an_older_attempts_file_stays_beside_a_newer_one(machine: Machine) -> None:
    """A restarted script writes the same names again; a file that was kept is never overwritten."""
    machine.write("model.pt", "first")
    machine.write("same.txt", "same")
    machine.end()
    machine.write("model.pt", "second")
    assert machine.kept["model.pt"] == "first"
    machine.end()
    machine.write("model.pt", "third!")
    machine.end()
    assert machine.kept == {
        "model.pt": "third!",
        "model.pt.~1~": "first",
        "model.pt.~2~": "second",
        "same.txt": "same",
    }


def test_all_attempts_share_one_limit(machine: Machine) -> None:
    """Whoever edits and restarts twenty times doesn't get twenty gigabytes: the oldest files go first."""
    for number in range(4):
        machine.write("model.pt", f"{number}" * 300, age=100 - number)
        machine.write(f"log-{number}.txt", "n" * 50, age=90 - number)
        assert machine.end(left_behind=800)["kept"] == number + 2
    assert {path: text[0] for path, text in machine.kept.items()} == {
        "model.pt": "3",
        "model.pt.~1~": "2",
        **{f"log-{number}.txt": "n" for number in range(4)},
    }


def test_a_file_with_one_of_the_runs_secrets_is_not_kept(machine: Machine) -> None:
    """`setup` may write a `.env`: kedge never writes secrets to the bucket, so it doesn't this way either."""
    machine.write(".env", "HF_TOKEN=hf_0123456789\n")
    machine.write("short.txt", "yes, this holds a word that is a setting")
    said = machine.end(secrets={"HF_TOKEN": "hf_0123456789", "FLAG": "yes"})
    assert set(machine.kept) == {"short.txt"}
    assert {each["path"]: each["left_out"] for each in said["named"]} == {
        ".env": "it contains one of the run's secrets",
        "short.txt": "",
    }


def test_a_hostile_job_s_names_are_bounded_and_its_links_lead_nowhere(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links that leave the folder, pipes, sockets, names with control characters, a folder at the results' path."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (machine.release / "leads-out").symlink_to(outside)
    (machine.release / "shadow").symlink_to("/etc/passwd")
    (machine.release / "up").symlink_to("../../../outside/secret")
    os.mkfifo(machine.release / "pipe")
    monkeypatch.chdir(machine.release)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    (machine.release / os.fsdecode(b"not-\xff-utf8")).write_text("x")
    machine.write("half.tmp", "unfinished")
    machine.write("\x1b[2Jcleared\n", "x")
    machine.task.left_behind.symlink_to(outside)
    said = machine.end(left_behind=2)
    assert (said["kept"], said["files"]) == (0, 3)
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    machine.task.left_behind.unlink()
    machine.end()
    assert set(machine.kept) == {"\x1b[2Jcleared\n"}


def test_a_link_to_a_kept_file_is_kept(machine: Machine) -> None:
    """`latest.pt` points to the newest checkpoint, at home as well."""
    machine.write("out/step-2.pt", "two")
    (machine.release / "out" / "latest.pt").symlink_to("step-2.pt")
    (machine.release / "out" / "code").symlink_to("../train.py")
    machine.end()
    assert (machine.task.left_behind / "out" / "latest.pt").readlink() == Path("step-2.pt")
    assert not os.path.lexists(machine.task.left_behind / "out" / "code")


def test_no_copy_is_made_after_its_time_limit_and_lost_files_are_named(machine: Machine) -> None:
    """At the deadline, the last upload needs the remaining time."""
    machine.write("model.pt", "weights")
    said = machine.end(seconds=-1)
    assert machine.kept == {}
    assert [each["left_out"] for each in said["named"]] == ["there was no time for it"]


def test_the_time_for_copies_ends_before_the_last_upload(tmp_path: Path) -> None:
    """The machine ends at the deadline, whatever is being copied."""
    now = time.time()
    near = Machine(tmp_path, created=now - 3600, deadline_at=now + 5)
    assert time_to_keep(near.layout, near.machine, 5.0, is_stopped=True) < now


def test_results_are_in_the_store_before_what_was_left_behind(tmp_path: Path) -> None:
    """A machine that dies in the middle of a gigabyte loses only the less valuable files."""
    machine = Machine(tmp_path / "machine", store_url=(tmp_path / "store").as_uri())
    (machine.task.checkpoints / "10.pt").write_text("ten")
    machine.write("model.pt", "weights")
    machine.end()
    store = CutStore(tmp_path / "store", at=blob_key(hashlib.sha256(b"weights").hexdigest()))
    with pytest.raises(OSError, match="the machine has ended"):
        Uploader(machine.layout, machine.machine, store).upload(RunState(Command()), {}, 1.0, final=True)
    assert {"checkpoints/10.pt", "left-behind.json"} <= {row["path"] for row in read_manifest(store)["files"]}
