"""`pip install` in `setup` works on every image: it installs into an environment that sees the image's packages."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pip
import pytest

from orchestrator.agent.base.errors import AgentError
from orchestrator.agent.python.installers import ensure_pip
from orchestrator.agent.python.virtualenv import ask_python, make_virtual_environment
from tests.agent.box import Box
from tests.agent.images import lock, make_image, make_system_python, own_pip
from tests.agent.jobenvs import NOT_ROOT, SEES, lock_of, outcome
from tests.agent.standin import write_wheel

MakeBox = Callable[..., Box]


def test_root_s_environment_stays_as_it_is(make_machine: Callable[..., Box], tmp_path: Path, wheels: Path) -> None:
    """A Deep Learning AMI's /opt/pytorch: what `setup` installs is in `run`, beside the image's torch.

    A `venv --system-site-packages` made from it would see only the system's packages. fact: dlami-pytorch-is-roots,
    fact: venv-on-venv
    """
    image = make_image(tmp_path / "opt/pytorch")
    lock(tmp_path / "opt")
    before = sorted(tmp_path.glob("opt/**/*"))
    box = make_machine(tmp_path, image=image)
    box.prefix = NOT_ROOT
    setup = f"pip install --find-links '{wheels}' toy && ! {image}/python3 -m pip install --find-links '{wheels}' toy"
    assert outcome(box, f'{SEES}; pip --version; echo "$VIRTUAL_ENV"', setup=setup) == "succeeded", box.log()
    assert f" {box.root}/env 2.9.1+rocm6.4 1.0\n" in box.log()
    assert f" {box.root}/env\n" in box.log()
    assert sorted(tmp_path.glob("opt/**/*")) == before


def test_programs_of_the_images_packages_see_what_setup_installs(
    make_machine: Callable[..., Box], tmp_path: Path
) -> None:
    """The image's torchrun would be started by the image's own Python, which doesn't see them."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    assert outcome(box, "torchrun") == "succeeded", box.log()
    assert f" torchrun of {box.root}/env\n" in box.log()


POOL = b"""import multiprocessing

def main():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print("pool of", pool.map_async(abs, [-1, -2]).get(timeout=30))
"""


def test_programs_of_the_images_packages_may_start_pools(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """A `spawn` child of multiprocessing imports the program that started it, and must not start it again."""
    image = make_image(tmp_path / "opt/pytorch")
    packages = next(image.parent.glob("lib/python*/site-packages"))
    (packages / "pool-1.0.dist-info").mkdir()
    (packages / "pool-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: pool\nVersion: 1.0\n")
    (packages / "pool-1.0.dist-info/entry_points.txt").write_text("[console_scripts]\npool = pool:main\n")
    (packages / "pool.py").write_bytes(POOL)
    box = make_machine(tmp_path, image=image)
    assert outcome(box, "pool") == "succeeded", box.log()
    assert " pool of [1, 2]\n" in box.log()


@pytest.mark.parametrize(
    ("managed", "hides"),
    [(True, ()), (False, ("ensurepip",)), (False, ("venv", "ensurepip"))],
    ids=["externally managed", "no ensurepip", "no venv"],
)
def test_a_systems_python_that_refuses_packages_gets_an_environment(
    make_machine: Callable[..., Box], tmp_path: Path, wheels: Path, managed: bool, hides: tuple[str, ...]
) -> None:
    """Also without GPUs: Debian's pip refuses to install, and its Python has no ensurepip or no venv.

    fact: externally-managed, fact: host-python-without-venv
    """
    programs = make_system_python(tmp_path / "usr", managed=managed, hides=hides)
    own_pip(programs)
    box = make_machine(programs)
    install = f"pip install --find-links '{wheels}'"
    if managed:
        refused = [str(programs / "python3"), "-m", *install.replace("'", "").split(), "toy"]
        assert b"externally-managed" in subprocess.run(refused, capture_output=True, env=box.env, check=False).stderr
    assert outcome(box, 'python3 -c "import sys, toy; print(sys.prefix)"', setup=f"{install} toy") == "succeeded"
    assert f" {box.root}/env\n" in box.log()


def test_an_image_without_pip_gets_the_one_bundled_with_its_python(
    make_machine: Callable[..., Box], tmp_path: Path, wheels: Path
) -> None:
    """For `pip` and for `python -m pip`."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch", pip=False))
    setup = f"pip install --find-links '{wheels}' toy && python -m pip install --find-links '{wheels}' another"
    assert outcome(box, SEES, setup=setup) == "succeeded", box.log()


def test_a_machine_that_can_not_get_pip_says_so_and_runs(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """A job that installs nothing must not fail because of it."""
    programs = make_system_python(tmp_path / "usr", hides=("venv", "ensurepip"))
    box = make_machine(programs)
    # All network requests are refused at once.
    box.env |= {"https_proxy": "http://127.0.0.1:1"}
    assert outcome(box, "python3 --version", setup="true") == "succeeded", box.log()
    assert "setup can't install Python packages: pip can't be downloaded" in box.log()
    assert outcome(box, "python3 --version") == "succeeded", box.log()
    assert box.log().count("pip can't be downloaded") == 1, "without a `setup`, nothing waits for a network"


def test_pip_is_downloaded_if_no_python_has_one(tmp_path: Path) -> None:
    """The locked wheel is downloaded; another file of that name isn't even kept."""
    programs = make_system_python(tmp_path / "usr", hides=("venv", "ensurepip"))
    source = Path(pip.__file__).parent
    files = {f"pip/{path.relative_to(source)}": path.read_bytes() for path in source.rglob("*") if path.is_file()}
    wheel = write_wheel(tmp_path / "wheels", "pip", "99.0", files)
    env = {"PATH": "/usr/bin:/bin"}
    make_virtual_environment(tmp_path / "env", ask_python(str(programs / "python3"), env))
    python = tmp_path / "env/bin/python"
    where = f"{wheel.parent.as_uri()}/"
    with pytest.raises(AgentError, match="pip can't be downloaded") as caught:
        ensure_pip(python, env, lock=lock_of(wheel).replace("sha256:", f"sha256:{'0' * 64} #"), wheels=where)
    assert "isn't the locked file" in str(caught.value.why)
    assert not list((tmp_path / "env").glob("*.whl"))
    ensure_pip(python, env, lock=lock_of(wheel), wheels=where)
    assert subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=True).stdout


def test_the_environment_is_made_once(make_machine: Callable[..., Box], tmp_path: Path, wheels: Path) -> None:
    """Packages stay for the next start; with another Python a new environment is made, and `setup` runs again."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    setup = f"echo x >> \"$KEDGE_OUTPUT_DIR/setups\"; pip install --find-links '{wheels}' toy"
    for _ in range(2):
        assert outcome(box, SEES, setup=setup) == "succeeded", box.log()
    made = box.note("env")["identity"]
    (box.root / "torch.json").write_text(
        json.dumps(
            {"python": str(make_image(tmp_path / "opt/other") / "python"), "torch": "2.9.1+rocm6.4", "archs": []}
        )
    )
    assert outcome(box, SEES, setup=setup) == "succeeded", box.log()
    assert box.note("env")["identity"] != made
    assert (box.root / "results/output/setups").read_text() == "x\nx\n"


def test_a_local_machine_uses_the_python_that_the_laptop_names(make_box: MakeBox, tmp_path: Path) -> None:
    """It can import from the user's own environment, and installers write elsewhere; no GPU's torch is protected."""
    mine = make_image(tmp_path / "my env", pip=False)
    before = sorted(mine.parent.rglob("*"))
    box = make_box()
    show = 'python -c "import sys, torch; print(sys.prefix, torch.__file__)"; command -v python3.* pip pip3'
    assert outcome(box, show, setup="python -m pip --version", python=f"{mine}/python") == "succeeded", box.log()
    assert f" {box.root}/env {mine.parent}/lib/" in box.log()
    assert f" {box.root}/env/bin/pip\n" in box.log()
    assert sorted(path for path in mine.parent.rglob("*") if "__pycache__" not in str(path)) == before
    assert not (box.root / "trace.sh").exists()


def test_a_local_machine_never_falls_back_to_another_python(make_box: MakeBox, tmp_path: Path) -> None:
    """The next one on PATH is the user's own environment, or kedge's: nothing may be installed there."""
    box = make_box()
    assert outcome(box, "echo started", setup="echo set up", python=str(tmp_path / "gone/bin/python")) == "failed"
    assert " set up\n" not in box.log()
    assert f"{tmp_path}/gone/bin/python can't be used" in box.report()["command"]["reason"]


def test_a_pip_that_is_missing_is_not_taken_from_elsewhere(make_box: MakeBox, tmp_path: Path) -> None:
    """An environment made by uv has no pip, and the next pip on PATH would install into another environment."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pip").write_text("#!/bin/sh\necho the wrong one\n")
    (tmp_path / "bin/pip").chmod(0o755)
    box = make_box()
    box.env["PATH"] = f"{tmp_path}/bin:{box.env['PATH']}"
    mine = make_image(tmp_path / "mine", pip=False)
    assert outcome(box, "pip install toy", python=f"{mine}/python") == "failed"
    assert "No module named pip" in box.log()


def test_a_shell_on_the_machine_finds_the_programs_of_the_run(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """`kedge ssh` and `kedge exec` read the same changes from a file; the user's own settings win, as in a run."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"), archs=("gfx942",))
    box.env |= {"UV_CONSTRAINT": "mine"}
    show = "for name in python pip uv; do command -v $name; done; env | grep -E '^(PATH|VIRTUAL_ENV|PIP_|UV_)' | sort"
    assert outcome(box, f'{{ {show}; }} >"$KEDGE_OUTPUT_DIR/shown"') == "succeeded", box.log()
    there = {**box.env, "ROOT": str(box.root)}
    for shell in ("sh", "bash"):
        script = f'. "$ROOT/activate.sh"; {show}'
        said = subprocess.run([shell, "-euc", script], capture_output=True, text=True, env=there, check=True).stdout
        assert said == (box.root / "results/output/shown").read_text()
    assert said.startswith(f"{box.root}/env/bin/python\n{box.root}/env/bin/pip\n{box.root}/env/bin/uv\n")
    assert "UV_CONSTRAINT=mine\n" in said
    assert "UV_INDEX=https://download.pytorch.org/whl/rocm6.4\n" in said
