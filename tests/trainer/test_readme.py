"""The trainer's README: its examples work unchanged."""

import re
import sys
from pathlib import Path

from tests.support.preloaded.process import run
from tests.trainer import harness, settings_table

PAGE = harness.ROOT / "trainer" / "README.md"


def test_recipe_on_the_page_is_one_file_that_trains_and_resumes(tmp_path: Path) -> None:
    """In a folder of its own, it trains an epoch, resumes for another, and is exported."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "curve.py").write_text(source)
    first = _trainer(tmp_path, "curve.py", "--set", "epochs=1", "--set", "curves=false", "--set", "onnx=false")
    assert "epoch 1/1" in first
    second = _trainer(tmp_path, "curve.py", "--set", "epochs=2", "--set", "curves=false", "--set", "model.width=32")
    assert "resumed from step 16" in second
    assert "epoch 2/2" in second
    assert (tmp_path / "output" / "model.onnx").is_file()
    assert "computed: sin on [-3, 3]" in (tmp_path / "output" / "README.md").read_text()


def test_page_lists_every_setting_with_its_default_and_meaning() -> None:
    """The table is the one that is rendered from the declarations: `python -m tests.trainer.settings_table`."""
    assert settings_table.read() == settings_table.render()


def _trainer(folder: Path, *argv: str) -> str:
    command = [sys.executable, "-m", "trainer", *argv]
    done = run(
        command, preload=harness.TRAINER, cwd=folder, env=harness.plain_environ(), timeout=harness.TIMEOUT_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
