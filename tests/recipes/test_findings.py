"""`python -m trainer check` and `generate`, whatever the recipe."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.base.errors import BadRequestError
from trainer.base.signals import StopFlag
from trainer.checks import check_data, list_checks
from trainer.checks._findings import Findings
from trainer.cli import main
from trainer.generators import generate_data

ROOT = Path(__file__).parents[2]


def test_problems_are_shown_by_kind_with_the_first_ten(tmp_path: Path) -> None:
    """All of them are in the JSON."""
    found = Findings(tmp_path)
    found.count("pictures", 500)
    for number in range(12):
        found.add("truncated", tmp_path / f"{number}.bin", "7 of 9 bytes")
    found.add("missing", "list.csv", "every data set has one")
    assert found.render().splitlines() == [
        "      500 pictures",
        "truncated: 12",
        *(f"  {number}.bin: 7 of 9 bytes" for number in range(10)),
        "  ... and 2 more",
        "missing: 1",
        "  list.csv: every data set has one",
        "This data set can't be trained on as it is.",
    ]
    assert len(json.loads(found.render_json())["problems"]) == 13


def test_paths_are_relative_to_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in every documented command; both where a check names the file, and where it names a place in the folder."""
    generate_data("gaussian", tmp_path / "data", count=2, seed=0)
    (tmp_path / "data" / "scene0000.jpg").write_bytes(b"")
    (tmp_path / "data" / "features" / "scene0001_depth.bin").unlink()
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "data/features/..", str(tmp_path / "data")):
        found = check_data("gaussian", Path(folder))
        problems = json.loads(found.render_json())["problems"]
        assert {each["path"] for each in problems} == {"scene0000.jpg", "features/scene0001_depth.bin"}


@pytest.mark.parametrize("batch", ["0", "-5", "1e3", "four"])
def test_a_batch_below_one_is_a_bad_request(batch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It isn't a smaller batch than the data."""
    assert (
        main(["check", "gaussian", "--data", str(tmp_path), f"--batch-size={batch}"], environ={}, stop=StopFlag()) == 2
    )
    assert f"{batch} is not a whole number above 0" in capsys.readouterr().err


def test_batch_that_leaves_no_step_is_a_problem(tmp_path: Path) -> None:
    """A batch as large as the data is none."""
    found = Findings(tmp_path)
    found.training_samples = 500
    found.require_steps(500)
    assert not found
    found.require_steps(512)
    assert "a batch of 512 leaves no step: 500 samples are for training" in found.render()


def test_names_with_control_characters_are_escaped(tmp_path: Path) -> None:
    """A data set may come from a stranger."""
    found = Findings(tmp_path)
    found.add("misnamed", "a\x1b[2Jb", "no number")
    assert "\x1b" not in found.render()


def test_unknown_names_and_folders_are_refused(tmp_path: Path) -> None:
    """Nothing is read or written."""
    with pytest.raises(BadRequestError, match="no check is called nothing"):
        check_data("nothing", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(BadRequestError, match="no generator is called nothing"):
        generate_data("nothing", tmp_path)


@pytest.mark.parametrize("name", list_checks())
def test_checks_run_without_installed_packages(name: str, tmp_path: Path) -> None:
    """A laptop that only launches has no torch: -S leaves out all of site-packages."""
    generate_data(name, tmp_path / "data")
    argv = [sys.executable, "-S", "-m", "trainer", "check", name, "--data", str(tmp_path / "data")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing is wrong with it." in done.stdout


def test_checks_import_the_standard_library_only() -> None:
    """And nothing of the trainer that imports more."""
    for path in (ROOT / "trainer" / "checks").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names | {"trainer"}, (path.name, name)
