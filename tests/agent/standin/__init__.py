"""Installs the stand-in for a GPU build of torch: in an image's Python, or in an index of wheels."""

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
    """Make a virtual environment with the stand-in, and return the folder of its programs."""
    venv.create(folder, symlinks=True)
    write_package(next(folder.glob("lib/python*/site-packages")), **machine)
    return folder / "bin"


def write_package(site: Path, **machine: Any) -> None:
    """Write it into a folder from which a Python imports."""
    for name, content in render_installed(**machine).items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_bytes(content)


def render_installed(**machine: Any) -> dict[str, bytes]:
    """Return the files that an installer writes, by name."""
    # CUDA's torch from PyPI has +cu128 in its own version, but not in its metadata.
    version = {**MI300X, **machine}["version"].partition("+cu")[0]
    info = f"torch-{version}.dist-info"
    return {
        **render_files(**machine),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n".encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\ntorchrun = torch:main\n",
    }


def render_files(**machine: Any) -> dict[str, bytes]:
    """Return its files, by name."""
    return {
        "torch/__init__.py": _SOURCE.read_bytes(),
        "torch/machine.json": json.dumps({**MI300X, "gpus": 1, "fault": "", **machine}).encode(),
    }


def make_index(folder: Path, companions: tuple[str, ...] = ("torchvision", "torchaudio"), /, **machine: Any) -> str:
    """Make an index from which pip can install it, with matching packages, and return the index's address."""
    version = {**MI300X, **machine}["version"]
    public, _, local = version.partition("+")
    write_wheel(folder, "torch", version, render_files(**machine))
    for name in companions:
        write_wheel(folder, name, f"0.24.1+{local}", requires=f"torch=={public}")
        # The newest version is for another torch.
        write_wheel(folder, name, f"0.99.0+{local}", requires="torch==99.0")
    return folder.as_uri()


def write_wheel(
    folder: Path, name: str, version: str, files: dict[str, bytes] | None = None, *, requires: str = ""
) -> Path:
    """Write the minimum that the wheel specification requires; the folder becomes an index."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    tags = "Wheel-Version: 1.0\nGenerator: kedge\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    contents = {
        **(files or {f"{name}/__init__.py": f"__version__ = {version!r}\n".encode()}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": tags.encode(),
    }
    record = io.StringIO()
    lines = csv.writer(record)
    for file, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.writerow([file, f"sha256={digest}", len(content)])
    lines.writerow([f"{info}/RECORD", "", ""])
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in {**contents, f"{info}/RECORD": record.getvalue().encode()}.items():
            entry = zipfile.ZipInfo(file)
            # Programs that are not Python scripts keep the modes that they have in the wheel.
            entry.external_attr = (0o100755 if "/scripts/" in file else 0o100644) << 16
            wheel.writestr(entry, content)
    links = [f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>' for wheel in sorted(place.glob("*.whl"))]
    (place / "index.html").write_text("".join(links))
    return path
