"""`setup` runs again only when something that it depends on has changed, and the log says what."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.agent.box import Box, wait_for
from tests.agent.images import make_image
from tests.agent.trees import Content, receive

CODE: dict[str, Content] = {
    "train.py": b"print(1)",
    "requirements.txt": b"-r more/base.txt\n",
    "more/base.txt": b"toy\n",
}
SAME = "setup is not repeated for the new code: its text, its variables and the files it depends on are the same"

# A build backend that writes nothing into the source's folder, as hatchling and flit don't.
BACKEND = b"""
import pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None, path=None):
    content = {
        "toy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: toy\\nVersion: 1.0\\n",
        "toy-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "toy-1.0.dist-info/RECORD": "",
        **({"toy.pth": str(path)} if path else {"toy.py": pathlib.Path("toy.py").read_text()}),
    }
    with zipfile.ZipFile(f"{folder}/toy-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in content.items():
            wheel.writestr(name, text)
    return "toy-1.0-py3-none-any.whl"

def build_editable(folder, config_settings=None, metadata_directory=None):
    return build_wheel(folder, path=pathlib.Path.cwd())
"""
PACKAGE: dict[str, Content] = {
    "pyproject.toml": b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend.py": BACKEND,
    "toy.py": b"version = 1",
}


class Desk:
    """Sends code to a machine, runs a job on it, and returns what the log says about `setup`."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self._sent = 0
        self._seen = 0

    def send(self, tree: dict[str, Content]) -> None:
        self._sent += 1
        receive(self.box, f"hash{self._sent:04}", tree)

    def run(self, setup: str, command: str = "true", **config: Any) -> list[str]:
        self.box.start(command, setup=setup, **config)
        state = self.box.await_state("succeeded", "failed")["state"]
        log = self.box.log()
        said, self._seen = log[self._seen :], len(log)
        assert state == "succeeded", said
        lines = (line.partition("[kedge] ")[2] for line in said.splitlines())
        return [line for line in lines if line.startswith(("setting up", "setup runs again", "setup is not repeated"))]


def test_setup_runs_again_only_for_what_it_depends_on(box: Box) -> None:
    """New code, new variables and restarts don't repeat it; its text, its variables and its inputs do."""
    desk, setup = Desk(box), 'echo ran >>"$KEDGE_OUTPUT_DIR/ran"; cat requirements.txt; test -n "${FLAVOUR-}" || true'
    desk.send(CODE)
    assert desk.run(setup, envs={"EPOCHS": "1"}) == ["setting up"]
    assert desk.run(setup, envs={"EPOCHS": "50", "LR": "0.1"}) == []
    desk.send({**CODE, "train.py": b"print(2)", "new.py": b""})
    assert desk.run(setup) == [SAME]
    assert desk.run(setup) == []
    assert desk.run(setup, envs={"FLAVOUR": "gpu"}) == ["setup runs again: FLAVOUR changed"]
    assert desk.run(setup, secrets={"FLAVOUR": "hunter2-hunter2"}) == ["setup runs again: FLAVOUR changed"]
    assert desk.run(setup, secrets={"FLAVOUR": "hunter2-hunter2"}) == []
    assert desk.run(setup, envs={"UV_INDEX_URL": "https://mirror"}) == [
        "setup runs again: FLAVOUR, UV_INDEX_URL changed"
    ]
    desk.send({**CODE, "more/base.txt": b"toy==2\n"})
    assert desk.run(setup) == ["setup runs again: UV_INDEX_URL changed"]
    desk.send({**CODE, "more/base.txt": b"toy==3\n", "uv.lock": b"x"})
    assert desk.run(setup) == ["setup runs again: more/base.txt, uv.lock changed"]
    assert desk.run(f"{setup}; true") == ["setup runs again: its text has changed"]
    telling = [path.name for path in box.root.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert telling == []
    assert (box.root / "setup.json").stat().st_mode & 0o077 == 0
    assert (box.root / "results/output/ran").read_text().count("ran") == 7


def test_a_setup_s_secrets_are_recorded_only_as_salted_hashes(make_box: Callable[..., Box]) -> None:
    """Two machines record different hashes of one secret, so that no list of hashes finds it."""
    hashes = []
    for box in (make_box(), make_box()):
        Desk(box).run('test -n "$TOKEN"', secrets={"TOKEN": "hunter2"})
        hashes.append(box.note("setup")["variables"]["TOKEN"])
        telling = [path.name for path in box.root.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
        assert telling == ["secrets.json"]
    assert hashes[0] != hashes[1]


def test_setup_inputs_replace_the_usual_files(box: Box) -> None:
    """Also to have it repeated for every change of code."""
    desk = Desk(box)
    how: dict[str, Any] = {"setup_inputs": ["tools/"]}
    desk.send({**CODE, "tools/a.py": b"1"})
    assert desk.run("true", **how) == ["setting up"]
    desk.send({**CODE, "tools/a.py": b"1", "requirements.txt": b"other"})
    assert desk.run("true", **how) == [SAME]
    desk.send({**CODE, "tools/a.py": b"2", "tools/b/c.py": b""})
    assert desk.run("true", **how) == ["setup runs again: tools/a.py, tools/b/c.py changed"]
    how = {"setup_inputs": ["reqs.txt", "**"]}
    (said,) = desk.run("true", **how)
    assert "more/base.txt, requirements.txt, train.py changed" in said
    assert said.endswith("; no file of the code matches 'reqs.txt' of setup_inputs")
    how = {"setup_inputs": ["**"]}
    desk.send({**CODE, "tools/a.py": b"2", "tools/b/c.py": b"", "train.py": b"print(3)"})
    assert desk.run("true", **how) == ["setup runs again: train.py changed"]


def test_a_setup_that_writes_into_the_code_s_folder_is_repeated_for_new_code(box: Box) -> None:
    """An extension that is built in place, weights that are downloaded there, a folder: the new folder lacks them.

    Caches don't count, and what it writes into data and outputs stays.
    """
    setup = "mkdir -p build __pycache__; [ -f build/ext.so ] || echo code >build/ext.so; touch set/x out/y"
    desk = Desk(box)
    how: dict[str, Any] = {"outputs": ["out"], "data": ["set"], "command": "cat build/ext.so"}
    (box.root / "data/set").mkdir()
    desk.send(CODE)
    assert desk.run(setup, **how) == ["setting up"]
    assert desk.run(setup, **how) == []
    wrote = ["setup runs again: it wrote build/ext.so into the code's folder"]
    desk.send({**CODE, "train.py": b"print(2)"})
    assert desk.run(setup, **how) == wrote
    # This run finds the extension of the last one, and writes nothing.
    assert desk.run(setup, **how, envs={"PIP_INDEX_URL": "x"}) == ["setup runs again: PIP_INDEX_URL changed"]
    desk.send({**CODE, "train.py": b"print(3)"})
    assert desk.run(setup, **how, envs={"PIP_INDEX_URL": "x"}) == wrote
    how["command"], setup = "true", "mkdir -p __pycache__; touch set/x out/y __pycache__/x.pyc"
    desk.send({**CODE, "train.py": b"print(4)"})
    assert desk.run(setup, **how) == ["setup runs again: its text has changed"]
    desk.send({**CODE, "train.py": b"print(5)"})
    assert desk.run(setup, **how) == [SAME]


def test_a_file_that_setup_itself_writes_is_no_input(box: Box) -> None:
    """A lock file that it makes, or brings up to date, doesn't repeat it at each start."""
    desk, setup = Desk(box), 'echo "$RANDOM" | tee uv.lock >>requirements.txt'
    desk.send(CODE)
    assert desk.run(setup) == ["setting up"]
    assert desk.run(setup) == []
    desk.send({**CODE, "train.py": b"print(2)"})
    assert desk.run(setup) == ["setup runs again: it wrote requirements.txt into the code's folder"]
    assert desk.run(setup) == []


def test_a_setup_that_was_killed_or_failed_is_repeated_and_what_it_wrote_counts(box: Box) -> None:
    """The repetition may find everything there, and write nothing; the next code's folder still lacks it."""
    desk, setup = Desk(box), 'touch setting; [ -f big ] || { touch big; exec sleep "$LONG"; }'
    desk.send(CODE)
    box.start("true", setup=setup, envs={"LONG": "1000"})
    wait_for((box.root / "code/big").exists)
    for pid in box.processes():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not box.processes())
    fix = "touch setting; [ -f big ] || { touch big; }"
    assert desk.run(fix)[-1] == "setup runs again: it has not succeeded yet"
    assert desk.run(fix) == []
    desk.send({**CODE, "train.py": b"print(2)"})
    assert desk.run(fix) == ["setup runs again: it wrote big into the code's folder"]
    assert (box.root / "code/big").exists()
    box.start("true", setup="exit 3", restarts=1)
    assert "setup failed with exit code 3" in box.await_state("failed")["reason"]
    assert box.log().count("setup runs again: it has not succeeded yet") == 2
    assert desk.run("exit 0")[-1] == "setup runs again: it has not succeeded yet"


def test_an_older_agent_s_record_means_that_setup_runs(box: Box) -> None:
    """So does a damaged one."""
    desk = Desk(box)
    for record in ('{"done": "abab"}', '{"format": 2, "done": true}', "[]"):
        (box.root / "setup.json").write_text(record)
        assert desk.run("true") == ["setting up"]


def test_a_setup_that_installs_the_code_is_repeated_for_new_code(
    make_machine: Callable[..., Box], tmp_path: Path
) -> None:
    """An editable install leads into the old code's folder, a copy has the old code; pip writes nothing there.

    The package is in the run's own environment, or elsewhere.
    """
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    desk, library = Desk(box), tmp_path / "library"
    elsewhere = f"python3 -m pip install --no-build-isolation --upgrade --target {library} ."
    installed = "it installed toy from the code's folder"
    for number, (setup, why) in enumerate(
        (
            ("pip install --no-build-isolation -e .", installed),
            ("pip install --no-build-isolation --force-reinstall .", installed),
            (elsewhere, "line 1 of setup installs from the code's folder"),
        )
    ):
        how: dict[str, Any] = {"setup": setup, "command": 'python3 -c "import toy; print(toy.version)"'}
        how |= {"envs": {"PYTHONPATH": str(library)}} if setup == elsewhere else {}
        for version in (f"{number}.1", f"{number}.2"):
            desk.send({**PACKAGE, "toy.py": f"version = {version}".encode()})
            said = desk.run(**how)
            assert f" {version}\n" in box.log()
        assert said == [f"setup runs again: {why}"], box.log()
