"""What answers kedge's probe on machines in the place of the real torch says what that one says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orchestrator.agent.python.torch_env import CHECK
from tests.cloudbox.nspawn import probed_torch


def probe(environ: dict[str, str]) -> Any:
    done = subprocess.run([sys.executable, "-B", CHECK, "probe"], env=environ, capture_output=True, check=True)
    return json.loads(done.stdout)


def test_a_probe_is_answered_as_by_the_real_torch(tmp_path: Path) -> None:
    """Version, build and GPUs: the file stands where a machine has it, in the folder of the real torch."""
    spec = find_spec("torch")
    assert spec
    assert spec.origin
    package = tmp_path / "torch"
    package.mkdir()
    for file in Path(spec.origin).parent.iterdir():
        source = Path(probed_torch.__file__) if file.name == "__init__.py" else file
        (package / file.name).symlink_to(source)
    # A computer may have GPUs; the machines of the box have none.
    alone = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    assert probe({**alone, "PYTHONPATH": str(tmp_path)}) == probe(alone)
