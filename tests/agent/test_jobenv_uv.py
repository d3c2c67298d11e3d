"""uv in `setup`: its first use installs the locked version, and uv installs packages beside the image's torch."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable
from pathlib import Path

from uv import find_uv_bin

from tests.agent.box import Box
from tests.agent.images import make_image
from tests.agent.jobenvs import SEES, lock_of, make_gpu_machine, outcome
from tests.agent.standin import make_index, write_wheel

UV = b'#!/bin/sh\necho uv of $VIRTUAL_ENV: "$@"\n'


def uv_wheel(folder: Path, script: bytes = UV) -> Path:
    """Make a package like uv's, which has only a program."""
    return write_wheel(folder, "uv", "1.0", {"uv-1.0.data/scripts/uv": script}).parent


def offer(box: Box, wheels: Path) -> None:
    """Put this uv into the machine's index, and into its agent's lock."""
    box.env["PIP_FIND_LINKS"] = str(wheels)
    (wheel,) = wheels.glob("*.whl")
    (box.root / "agent/kedge_agent/python/locked.py").write_text(f"PIP = ''\nUV = {lock_of(wheel)!r}\n")


def test_a_uv_that_was_not_locked_is_not_installed(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """Somebody else has put it into the index, with the requested version."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    offer(box, uv_wheel(tmp_path / "index"))
    uv_wheel(tmp_path / "index", b"#!/bin/sh\necho evil\n")
    assert outcome(box, "true", setup="uv pip install toy") == "failed"
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in box.log()
    assert "evil" not in box.log()


def test_uv_comes_with_its_first_use(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """No launch waits for it, and it needs no root."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    offer(box, uv_wheel(tmp_path / "index"))
    assert outcome(box, "uv pip list; uv version") == "succeeded", box.log()
    assert f" uv of {box.root}/env: pip list\n" in box.log()
    assert f" uv of {box.root}/env: version\n" in box.log()


def test_the_real_uv_installs_beside_the_images_torch(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """Pip installs uv on first use. uv installs a package that needs torch, keeps the torch, and refuses another."""
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


def test_an_index_without_uv_is_reported(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """The line of `setup` fails, and the error says what to do instead."""
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    assert outcome(box, "true", setup="uv pip install toy") == "failed"
    assert "uv can't be installed on this machine; use pip instead\n" in box.log()


def test_uv_finds_torch_in_the_environment(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """It sees only the environment's own packages: it doesn't download again what is recorded there.

    Without what torch needs, which the image has as well. fact: uv-sees-its-environment-only
    """
    box = make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch"))
    assert outcome(box, "true") == "succeeded", box.log()
    packages = next(box.root.glob("env/lib/python3*/site-packages"))
    (recorded,) = importlib.metadata.distributions(path=[str(packages)])
    assert (recorded.name, recorded.version, recorded.requires) == ("torch", "2.9.1+rocm6.4", None)


def test_an_images_uv_is_used(make_machine: Callable[..., Box], tmp_path: Path) -> None:
    """No other one is put before it on PATH."""
    image = make_image(tmp_path / "opt/pytorch")
    (tmp_path / "uv").write_text("#!/bin/sh\necho the image\\'s\n")
    (tmp_path / "uv").chmod(0o755)
    box = make_machine(tmp_path, image=image)
    assert outcome(box, "uv") == "succeeded", box.log()
    assert " the image's\n" in box.log()
