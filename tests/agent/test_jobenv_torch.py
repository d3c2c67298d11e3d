"""What `setup` installs never replaces the torch that drives the machine's GPUs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.box import Box
from tests.agent.images import make_image
from tests.agent.jobenvs import make_gpu_machine, outcome
from tests.agent.standin import make_index, write_wheel

VERSION = 'python3 -c "import torch; print(torch.__version__)"'


def test_requirements_do_not_replace_the_torch_that_drives_the_gpus(
    make_machine: Callable[..., Box], tmp_path: Path
) -> None:
    """Pip and uv are told to keep the installed version; packages that are missing are chosen to match it.

    A newer torch and a torchvision for it are in the index that `setup` uses. fact: torch-index-of-a-version
    """
    index = make_index(tmp_path / "rocm")
    write_wheel(tmp_path / "pypi", "torch", "99.0", {"torch/__init__.py": b"__version__ = '99.0'\n"})
    write_wheel(tmp_path / "pypi", "torchvision", "0.99.0", requires="torch==99.0")
    write_wheel(tmp_path / "pypi", "toy", "1.0", requires="torch>=2")
    box = make_gpu_machine(make_machine, tmp_path, index=index)
    del box.env["PIP_NO_INDEX"]
    box.env["PIP_INDEX_URL"] = (tmp_path / "pypi").as_uri()
    said = 'python3 -m pip list; echo "$UV_CONSTRAINT $UV_INDEX $UV_INDEX_STRATEGY"'
    assert outcome(box, f"{VERSION}; {said}", setup="pip install -U torch torchvision toy") == "succeeded", box.log()
    assert " 2.9.1+rocm6.4\n" in box.log()
    assert "torchvision 0.24.1+rocm6.4\n" in box.log()
    constraints = box.root / "env/constraints.txt"
    assert f" {constraints.as_uri()} {index} unsafe-best-match\n" in box.log()
    assert constraints.read_text() == f"--extra-index-url {index}\ntorch==2.9.1+rocm6.4\n"


@pytest.mark.parametrize(
    ("version", "index"),
    [
        ("2.9.1+rocm6.4", "https://download.pytorch.org/whl/rocm6.4"),
        ("2.7.1+cu128", "https://download.pytorch.org/whl/cu128"),
        ("2.9.1+rocm7.0.2.git351ff442", ""),
    ],
)
def test_the_index_is_that_of_the_images_torch(
    make_machine: Callable[..., Box], tmp_path: Path, version: str, index: str
) -> None:
    """By the tag in its version; a build of AMD's own has no index. The job's own choice wins."""
    box = make_gpu_machine(make_machine, tmp_path)
    note = json.loads((box.root / "torch.json").read_text())
    (box.root / "torch.json").write_text(json.dumps({**note, "torch": version}))
    own = {"PIP_CONSTRAINT": "", "UV_INDEX_URL": "https://mine/simple"}
    assert outcome(box, 'echo "<$PIP_CONSTRAINT> <${UV_INDEX-}>"', envs=own) == "succeeded", box.log()
    assert " <> <>\n" in box.log()
    assert box.note("env")["index"] == index


def test_a_machine_without_gpus_does_not_pin_torch(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """Any torch from `setup` is right: no GPU depends on the image's."""
    write_wheel(tmp_path / "pypi", "torch", "99.0", {"torch/__init__.py": b"__version__ = '99.0'\n"})
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch", version="2.9.1+cpu", gpus=0))
    setup = f"pip install --no-index --find-links '{tmp_path}/pypi/torch' torch==99.0"
    assert outcome(box, VERSION, setup=setup) == "succeeded", box.log()
    assert " 99.0\n" in box.log()


@pytest.mark.parametrize(
    ("wheel", "told"),
    [
        ({"version": "3.0+cpu", "gpus": 0}, "put torch 3.0+cpu in the place of 2.9.1+rocm6.4: it sees 0 of 2 GPUs"),
        ({"version": "3.0", "gpus": 1}, "put torch 3.0 in the place of 2.9.1+rocm6.4: it sees 1 of 2 GPUs"),
        ({}, "put torch 3.0 in the place of 2.9.1+rocm6.4: it can't be imported"),
    ],
    ids=["sees none", "sees fewer", "can't be imported"],
)
def test_a_setup_that_breaks_torch_for_the_gpus_fails_with_its_line(
    make_machine: Callable[..., Box], tmp_path: Path, wheel: dict[str, Any], told: str
) -> None:
    """Training on the CPU would cost the same for nothing. The next start finds the image's torch again."""
    if wheel:
        make_index(tmp_path / "index", (), **wheel)
    else:
        write_wheel(tmp_path / "index", "torch", "3.0", {"torch/__init__.py": b"raise ImportError('libcudart')\n"})
    box = make_gpu_machine(make_machine, tmp_path)
    install = f"PIP_CONSTRAINT= pip install --upgrade --find-links '{tmp_path}/index/torch' torch"
    setup = f"set -eu\necho before\n{install}\necho after"
    assert outcome(box, "true", setup=setup) == "failed"
    assert f"setup broke torch for the GPUs: line 3 of setup ({install}) {told}" in box.log(), box.log()
    assert "started" not in box.log()
    assert not (box.root / "activate.sh").exists(), "of an environment that is gone"
    assert outcome(box, VERSION, setup="echo mended") == "succeeded", box.log()
    assert " 2.9.1+rocm6.4\n" in box.log()


def test_watching_a_setup_changes_nothing_in_it(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """Its status, pipes, last argument and own trap are as without the watch; no trace has secrets."""
    box = make_gpu_machine(make_machine, tmp_path)
    setup = """set -u
false
echo "status $?"
false | true
echo "pipe ${PIPESTATUS[*]}"
true a b "$TOKEN"
echo "last ${#_}"
bash -c 'echo "child <${BASH_ENV-}>"'
trap 'true' DEBUG
echo own
"""
    assert outcome(box, "true", setup=setup, secrets={"TOKEN": "s3cr3t"}) == "succeeded", box.log()
    for said in ("status 1", "pipe 1 0", "last 6", "child <>", "own"):
        assert f" {said}\n" in box.log()
    trace = (box.root / "setup.trace").read_text()
    assert trace.splitlines()[-1].endswith(" 9")
    assert "s3cr3t" not in trace


def test_a_setup_s_own_trace_shows_only_its_lines(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """`set -x` shows only the lines of `setup`, and a failing line ends it as usual."""
    box = make_gpu_machine(make_machine, tmp_path)
    setup = "set -euxo pipefail\ntrue a b\n: ${#_}\nfalse | true || : ${PIPESTATUS[*]}\nfalse | true\necho never"
    assert outcome(box, "true", setup=setup) == "failed"
    plain = subprocess.run(["bash", "-c", setup], capture_output=True, text=True, check=False)
    shown = [line[line.index(" +") + 1 :] for line in box.log().splitlines() if " +" in line]
    # The order of a pipe's two sides varies.
    assert sorted(shown) == sorted(plain.stderr.splitlines())


def test_loops_in_a_setup_do_not_fill_the_disk(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """Each line is recorded its first hundred times; a line that comes later is still found."""
    box = make_gpu_machine(make_machine, tmp_path)
    setup = "for number in {1..500}; do\n  :\n  true\ndone\nfor number in {1..500}; do :; done\necho last"
    assert outcome(box, "true", setup=setup) == "succeeded", box.log()
    lines = [line.split()[1] for line in (box.root / "setup.trace").read_text().splitlines()]
    assert lines.count("2") == lines.count("3") == 100
    assert lines[-2:] == ["5", "6"]
