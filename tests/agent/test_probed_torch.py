"""The stand-in that answers kedge's probe of torch on machines answers like the real torch."""

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


def test_the_stand_in_answers_a_probe_like_the_real_torch(tmp_path: Path) -> None:
    """Version, build and GPUs: the stand-in is where a machine's image has torch, in the real torch's folder."""
    spec = find_spec("torch")
    assert spec
    assert spec.origin
    package = tmp_path / "torch"
    package.mkdir()
    for file in Path(spec.origin).parent.iterdir():
        source = Path(probed_torch.__file__) if file.name == "__init__.py" else file
        (package / file.name).symlink_to(source)
    # This computer may have GPUs; the box's machines have none.
    alone = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    assert probe({**alone, "PYTHONPATH": str(tmp_path)}) == probe(alone)
