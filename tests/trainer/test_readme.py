"""The trainer's README: its examples work unchanged."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.preloaded.process import run
from tests.trainer import harness
from trainer.base.config import Settings
from trainer.base.setting import flatten_settings

PAGE = harness.ROOT / "trainer" / "README.md"


def test_recipe_on_the_page_is_one_file_that_trains_and_resumes(tmp_path: Path) -> None:
    """Written into a copy of the trainer, it is listed, trains an epoch, resumes for another, and is exported."""
    shutil.copytree(harness.ROOT / "trainer", tmp_path / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "trainer" / "recipes" / "curve.py").write_text(source)
    assert "curve   A noisy sine, fitted by a small MLP." in _trainer(tmp_path, "--list")
    first = _trainer(tmp_path, "curve", "--set", "epochs=1", "--set", "curves=false", "--set", "onnx=false")
    assert "epoch 1/1" in first
    second = _trainer(tmp_path, "curve", "--set", "epochs=2", "--set", "curves=false", "--set", "model.width=32")
    assert "resumed from step 16" in second
    assert "epoch 2/2" in second
    assert (tmp_path / "output" / "model.onnx").is_file()
    assert "computed: sin on [-3, 3]" in (tmp_path / "output" / "README.md").read_text()


@pytest.mark.parametrize("group", ["stall", "track", "publish"])
def test_page_lists_the_settings_with_their_names(group: str) -> None:
    """Each setting for tracking and publishing is in the table."""
    (table,) = re.findall(r"## Settings of every recipe\n(.*?)\n\n", PAGE.read_text(), re.DOTALL)
    lines = [line for line in table.splitlines() if f"`{group}." in line]
    names = {key.partition(".")[2] for key in flatten_settings(Settings()) if key.startswith(f"{group}.")}
    named = {name for line in lines for name in re.findall(r"`(?:[a-z]+)?\.([a-z_]+)`", line)}
    assert names <= named


def _trainer(folder: Path, *argv: str) -> str:
    command = [sys.executable, "-m", "trainer", *argv]
    environ = harness.plain_environ(PYTHONPATH=str(folder))
    # The trainer itself is the copy's.
    libraries = ("torch", "torch.distributed")
    done = run(command, preload=libraries, cwd=folder, env=environ, timeout=harness.TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout
