"""`pip install` in `setup` works on every image: into an environment that sees the image's packages."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pip
import pytest
from uv import find_uv_bin

from orchestrator.agent.errors import AgentError
from orchestrator.agent.pips import ensure_pip
from orchestrator.agent.pythonenv import ask_python, make_virtual_environment
from tests.agent.box import Box
from tests.agent.images import lock, make_image, make_system_python, make_wheels, own_pip
from tests.agent.standin import make_index, write_wheel

MakeBox = Callable[..., Box]
# Root without the right to write everywhere is as any other user.
NOT_ROOT = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
SEES = 'python3 -c "import sys, torch, toy; print(sys.prefix, torch.__version__, toy.__version__)"'


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Packages that can be had without a network."""
    return make_wheels(tmp_path / "wheels", "toy", "another")


@pytest.fixture
def make_machine(make_box: MakeBox, tmp_path: Path) -> Callable[..., Box]:
    """Make a rented machine with its own PATH, whose torch was found at boot if it has GPUs."""

    def make(programs: Path, *, image: Path | None = None, archs: tuple[str, ...] = (), **torch: Any) -> Box:
        box = make_box(provider="do", path=[str(image)] if image else [])
        box.env["PATH"] = f"{programs}:/usr/bin:/bin"
        for name in ("PIP_FIND_LINKS", "PIP_CONSTRAINT", "PIP_EXTRA_INDEX_URL"):
            box.env.pop(name, None)
        box.env |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "HOME": str(tmp_path)}
        if archs:
            note = {"python": f"{image}/python3", "torch": "2.9.1+rocm6.4", "archs": archs, **torch}
            (box.root / "torch.json").write_text(json.dumps(note))
        return box

    return make


def outcome(box: Box, command: str, **config: Any) -> str:
    """Run a command to its end, and return its state."""
    box.start(command, **config)
    return str(box.await_state("succeeded", "failed", timeout=90)["state"])


def test_an_environment_of_roots_stays_as_it_is(make_machine: Callable[..., Box], tmp_path: Path, wheels: Path) -> None:
    """A Deep Learning AMI's /opt/pytorch: what `setup` installs is in `run`, beside the image's torch.

    A `venv --system-site-packages` of that would see the system's packages only. fact: dlami-pytorch-is-roots,
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
    """The image's own torchrun would be started by the image's own Python, which doesn't."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    assert outcome(box, "torchrun") == "succeeded", box.log()
    assert f" torchrun of {box.root}/env\n" in box.log()


POOL = b"""import multiprocessing

def main():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print("pool of", pool.map_async(abs, [-1, -2]).get(timeout=30))
"""


def test_programs_of_the_images_packages_may_start_pools(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """A child of multiprocessing's `spawn` imports the program that started it, and must not become another one."""
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
    """On a machine without GPUs, too: Debian's pip refuses to install, its Python has no ensurepip, or no venv.

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


def test_an_image_without_pip_gets_the_one_that_its_python_carries(
    make_machine: Callable[..., Box], tmp_path: Path, wheels: Path
) -> None:
    """For `pip` and for `python -m pip`."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch", pip=False))
    setup = f"pip install --find-links '{wheels}' toy && python -m pip install --find-links '{wheels}' another"
    assert outcome(box, SEES, setup=setup) == "succeeded", box.log()


def test_a_machine_where_pip_cannot_be_had_says_so_and_runs(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """A job that installs nothing must not fail for it."""
    programs = make_system_python(tmp_path / "usr", hides=("venv", "ensurepip"))
    box = make_machine(programs)
    # Whatever is asked for over the network is refused at once.
    box.env |= {"https_proxy": "http://127.0.0.1:1"}
    assert outcome(box, "python3 --version", setup="true") == "succeeded", box.log()
    assert "setup can't install Python packages: pip can't be had" in box.log()
    assert outcome(box, "python3 --version") == "succeeded", box.log()
    assert box.log().count("pip can't be had") == 1, "where nothing is set up, nobody waits for a network"


def test_pip_is_fetched_where_no_python_has_one(tmp_path: Path) -> None:
    """Its wheel, as it was locked; another file under that name isn't even kept."""
    programs = make_system_python(tmp_path / "usr", hides=("venv", "ensurepip"))
    source = Path(pip.__file__).parent
    files = {f"pip/{path.relative_to(source)}": path.read_bytes() for path in source.rglob("*") if path.is_file()}
    wheel = write_wheel(tmp_path / "wheels", "pip", "99.0", files)
    env = {"PATH": "/usr/bin:/bin"}
    make_virtual_environment(tmp_path / "env", ask_python(str(programs / "python3"), env))
    python = tmp_path / "env/bin/python"
    where = f"{wheel.parent.as_uri()}/"
    with pytest.raises(AgentError, match="pip can't be had") as caught:
        ensure_pip(python, env, lock=lock_of(wheel).replace("sha256:", f"sha256:{'0' * 64} #"), wheels=where)
    assert "isn't the file that was locked" in str(caught.value.why)
    assert not list((tmp_path / "env").glob("*.whl"))
    ensure_pip(python, env, lock=lock_of(wheel), wheels=where)
    assert subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=True).stdout


def test_the_environment_is_made_once(make_machine: Callable[..., Box], tmp_path: Path, wheels: Path) -> None:
    """What was installed stays for the next start; on another Python another one is made, and `setup` run anew."""
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


def test_a_machine_at_home_has_the_python_that_the_laptop_names(make_box: MakeBox, tmp_path: Path) -> None:
    """The user's own environment can be imported, and installers write elsewhere; no GPU's torch is watched."""
    mine = make_image(tmp_path / "my env", pip=False)
    before = sorted(mine.parent.rglob("*"))
    box = make_box()
    show = 'python -c "import sys, torch; print(sys.prefix, torch.__file__)"; command -v python3.* pip pip3'
    assert outcome(box, show, setup="python -m pip --version", python=f"{mine}/python") == "succeeded", box.log()
    assert f" {box.root}/env {mine.parent}/lib/" in box.log()
    assert f" {box.root}/env/bin/pip\n" in box.log()
    assert sorted(path for path in mine.parent.rglob("*") if "__pycache__" not in str(path)) == before
    assert not (box.root / "trace.sh").exists()


def test_a_machine_at_home_never_falls_back_to_another_python(make_box: MakeBox, tmp_path: Path) -> None:
    """What PATH would find next is the user's own environment, or kedge's: nothing may be installed there."""
    box = make_box()
    assert outcome(box, "echo started", setup="echo set up", python=str(tmp_path / "gone/bin/python")) == "failed"
    assert " set up\n" not in box.log()
    assert f"{tmp_path}/gone/bin/python doesn't describe itself" in box.ask("report")["command"]["reason"]


def test_a_pip_that_is_missing_is_not_taken_from_elsewhere(make_box: MakeBox, tmp_path: Path) -> None:
    """An environment that uv made has none, and the next one on PATH installs into its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pip").write_text("#!/bin/sh\necho the wrong one\n")
    (tmp_path / "bin/pip").chmod(0o755)
    box = make_box()
    box.env["PATH"] = f"{tmp_path}/bin:{box.env['PATH']}"
    mine = make_image(tmp_path / "mine", pip=False)
    assert outcome(box, "pip install toy", python=f"{mine}/python") == "failed"
    assert "No module named pip" in box.log()


def test_a_shell_on_the_machine_finds_what_the_run_does(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """`kedge ssh` and `kedge exec` read the same changes from a file; what the user has set stays, as it does there."""
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


UV = b'#!/bin/sh\necho uv of $VIRTUAL_ENV: "$@"\n'


def uv_wheel(folder: Path, script: bytes = UV) -> Path:
    """Make a package as uv's is: nothing but a program."""
    return write_wheel(folder, "uv", "1.0", {"uv-1.0.data/scripts/uv": script}).parent


def lock_of(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def offer(box: Box, wheels: Path) -> None:
    """Let the machine's index have this uv, and its agent have locked it."""
    box.env["PIP_FIND_LINKS"] = str(wheels)
    (wheel,) = wheels.glob("*.whl")
    (box.root / "agent/kedge_agent/locked.py").write_text(f"PIP = ''\nUV = {lock_of(wheel)!r}\n")


def test_a_uv_that_was_not_locked_is_not_installed(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """An index that somebody else has filled, with the version that was asked for."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    offer(box, uv_wheel(tmp_path / "index"))
    uv_wheel(tmp_path / "index", b"#!/bin/sh\necho evil\n")
    assert outcome(box, "true", setup="uv pip install toy") == "failed"
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in box.log()
    assert "evil" not in box.log()


def test_uv_comes_with_its_first_use(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """No launch waits for it, and nobody needs root for it."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    offer(box, uv_wheel(tmp_path / "index"))
    assert outcome(box, "uv pip list; uv version") == "succeeded", box.log()
    assert f" uv of {box.root}/env: pip list\n" in box.log()
    assert f" uv of {box.root}/env: version\n" in box.log()


def test_the_real_uv_installs_beside_the_images_torch(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """Pip brings it at its first use. It takes a package that needs torch, keeps the torch, and refuses another one."""
    write_wheel(tmp_path / "pypi", "torch", "99.0", {"torch/__init__.py": b"__version__ = '99.0'\n"})
    write_wheel(tmp_path / "pypi", "toy", "1.0", requires="torch>=2")
    box = make_gpu_machine(make_machine, tmp_path, index=make_index(tmp_path / "rocm"))
    offer(box, uv_wheel(tmp_path / "index", Path(find_uv_bin()).read_bytes()))
    box.env |= {"UV_DEFAULT_INDEX": (tmp_path / "pypi").as_uri(), "UV_NO_CONFIG": "1", "UV_OFFLINE": "1"}
    setup = "uv pip install toy && ! uv pip install --upgrade torch==99.0 && uv --version"
    assert outcome(box, f"{SEES}; uv pip list", setup=setup) == "succeeded", box.log()
    assert f" {box.root}/env 2.9.1+rocm6.4 1.0\n" in box.log()
    assert "you require torch==99.0" in box.log()
    assert re.search(r" uv \d+\.\d+", box.log())
    assert re.search(r" torch +2\.9\.1\+rocm6\.4\n", box.log())


def test_a_network_without_uv_is_said(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """The line of `setup` fails, with what to do instead."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    assert outcome(box, "true", setup="uv pip install toy") == "failed"
    assert "uv can't be installed on this machine; pip does the same\n" in box.log()


def test_uv_finds_torch_in_the_environment(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """It looks at the environment's own packages alone: what is recorded there it doesn't fetch again.

    Without what torch needs, which the image has as well. fact: uv-sees-its-environment-only
    """
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    assert outcome(box, "true") == "succeeded", box.log()
    packages = next(box.root.glob("env/lib/python3*/site-packages"))
    (recorded,) = importlib.metadata.distributions(path=[str(packages)])
    assert (recorded.name, recorded.version, recorded.requires) == ("torch", "2.9.1+rocm6.4", None)


def test_an_images_uv_is_used(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """No other one is put before it."""
    image = make_image(tmp_path / "opt/pytorch")
    (tmp_path / "uv").write_text("#!/bin/sh\necho the image\\'s\n")
    (tmp_path / "uv").chmod(0o755)
    box = make_machine(tmp_path, image=image)
    assert outcome(box, "uv") == "succeeded", box.log()
    assert " the image's\n" in box.log()


def make_gpu_machine(make_machine: Callable[..., Box], tmp_path: Path, **torch: Any) -> Box:
    """Make a machine with two MI300X, whose image has its torch."""
    return make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch", gpus=2), archs=("gfx942",) * 2, **torch)


VERSION = 'python3 -c "import torch; print(torch.__version__)"'


def test_requirements_do_not_replace_the_torch_that_drives_the_gpus(
    make_machine: Callable[..., Box], tmp_path: Path
) -> None:
    """The version that is there is kept by pip, and uv is told the same; what is missing suits it.

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
    """By the tag in its version; a build of AMD's own is in none. The job's own choice stays."""
    box = make_gpu_machine(make_machine, tmp_path)
    note = json.loads((box.root / "torch.json").read_text())
    (box.root / "torch.json").write_text(json.dumps({**note, "torch": version}))
    own = {"PIP_CONSTRAINT": "", "UV_INDEX_URL": "https://mine/simple"}
    assert outcome(box, 'echo "<$PIP_CONSTRAINT> <${UV_INDEX-}>"', envs=own) == "succeeded", box.log()
    assert " <> <>\n" in box.log()
    assert box.note("env")["index"] == index


def test_a_machine_without_gpus_keeps_no_torch(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """Whichever `setup` installs is right: nothing depends on the image's."""
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
def test_a_setup_that_takes_torch_from_the_gpus_fails_with_its_line(
    make_machine: Callable[..., Box], tmp_path: Path, wheel: dict[str, Any], told: str
) -> None:
    """Training on the CPU would cost the same and come to nothing. The next start finds the image's torch again."""
    if wheel:
        make_index(tmp_path / "index", (), **wheel)
    else:
        write_wheel(tmp_path / "index", "torch", "3.0", {"torch/__init__.py": b"raise ImportError('libcudart')\n"})
    box = make_gpu_machine(make_machine, tmp_path)
    install = f"PIP_CONSTRAINT= pip install --upgrade --find-links '{tmp_path}/index/torch' torch"
    setup = f"set -eu\necho before\n{install}\necho after"
    assert outcome(box, "true", setup=setup) == "failed"
    assert f"setup took torch from the GPUs: line 3 of setup ({install}) {told}" in box.log(), box.log()
    assert "started" not in box.log()
    assert not (box.root / "activate.sh").exists(), "of an environment that is gone"
    assert outcome(box, VERSION, setup="echo mended") == "succeeded", box.log()
    assert " 2.9.1+rocm6.4\n" in box.log()


def test_a_setup_is_watched_without_a_difference_to_it(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """Status, pipe, last argument and a trap of its own are as they are without it; secrets are in no trace."""
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


def test_what_a_setup_traces_of_itself_is_its_own(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """`set -x` shows the lines of `setup` alone, and a failing one ends it as ever."""
    box = make_gpu_machine(make_machine, tmp_path)
    setup = "set -euxo pipefail\ntrue a b\n: ${#_}\nfalse | true || : ${PIPESTATUS[*]}\nfalse | true\necho never"
    assert outcome(box, "true", setup=setup) == "failed"
    plain = subprocess.run(["bash", "-c", setup], capture_output=True, text=True, check=False)
    shown = [line[line.index(" +") + 1 :] for line in box.log().splitlines() if " +" in line]
    # The two sides of a pipe are shown as they come.
    assert sorted(shown) == sorted(plain.stderr.splitlines())


def test_loops_of_a_setup_fill_no_disk(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """Of each line the first hundred times are written down; a line that comes later is found all the same."""
    box = make_gpu_machine(make_machine, tmp_path)
    setup = "for number in {1..500}; do\n  :\n  true\ndone\nfor number in {1..500}; do :; done\necho last"
    assert outcome(box, "true", setup=setup) == "succeeded", box.log()
    lines = [line.split()[1] for line in (box.root / "setup.trace").read_text().splitlines()]
    assert lines.count("2") == lines.count("3") == 100
    assert lines[-2:] == ["5", "6"]
