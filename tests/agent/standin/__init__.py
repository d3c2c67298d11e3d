"""Puts the stand-in for a GPU build of torch where a machine's image, or an index of wheels, would have one."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import venv
import zipfile
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).parent / "torch" / "__init__.py"
MI300X = {"version": "2.9.1+rocm6.4", "name": "AMD Instinct MI300X", "arch": "gfx942"}
H100 = {"version": "2.7.1+cu128", "name": "NVIDIA H100 80GB HBM3", "arch": "sm_90"}
T4 = {"version": "2.7.1+cu128", "name": "Tesla T4", "arch": "sm_75"}


def make_environment(folder: Path, **machine: Any) -> Path:
    """Make a virtual environment with it, and return the folder of its programs."""
    venv.create(folder, symlinks=True)
    write_package(next(folder.glob("lib/python*/site-packages")), **machine)
    return folder / "bin"


def write_package(site: Path, **machine: Any) -> None:
    """Put it into a folder that some Python imports from."""
    for name, content in render_files(**machine).items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_bytes(content)


def render_files(**machine: Any) -> dict[str, bytes]:
    """Return its files, by name."""
    return {
        "torch/__init__.py": _SOURCE.read_bytes(),
        "torch/machine.json": json.dumps({**MI300X, "gpus": 1, "fault": "", **machine}).encode(),
    }


def make_index(folder: Path, **machine: Any) -> str:
    """Make an index that pip can take it from, and return its address."""
    version = {**MI300X, **machine}["version"]
    place = folder / "torch"
    place.mkdir(parents=True)
    name = f"torch-{version}-py3-none-any.whl"
    _write_wheel(place / name, f"torch-{version}.dist-info", version, render_files(**machine))
    (place / "index.html").write_text(f'<a href="{name.replace("+", "%2B")}">{name}</a>')
    return folder.as_uri()


def _write_wheel(path: Path, info: str, version: str, files: dict[str, bytes]) -> None:
    """Write what the specification of wheels asks for, and no more."""
    tags = "Wheel-Version: 1.0\nGenerator: kedge\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = tags.encode()
    record = io.StringIO()
    lines = csv.writer(record)
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.writerow([name, f"sha256={digest}", len(content)])
    lines.writerow([f"{info}/RECORD", "", ""])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in {**files, f"{info}/RECORD": record.getvalue().encode()}.items():
            wheel.writestr(name, content)
