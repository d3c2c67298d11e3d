"""Settings, batches, recipes and flags, and the errors for bad ones."""

import json
import math
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.trainer import harness
from trainer.base.config import Settings
from trainer.base.contract import read_contract
from trainer.base.overrides import apply_overrides
from trainer.base.signals import StopFlag
from trainer.cli import main
from trainer.report.status import MetricsLog, read_metrics


@pytest.mark.parametrize(
    ("assignment", "why", "fix"),
    [
        ("epoch=3", "settings has this name; RECIPE --help lists them", "did you mean --set epochs=3?"),
        ("lr=3", "RECIPE --help lists them", "did you mean --set "),
        ("optimizer.learningrate=1", "RECIPE --help lists them", "did you mean --set optimizer.learning_rate=1?"),
        ("learning_rate=0.1", "RECIPE --help lists them", "did you mean --set optimizer.learning_rate=0.1?"),
        ("epochs=three", "epochs must be a whole number", "--set epochs=12"),
        ("epochs=2.5", "epochs must be a whole number", "--set epochs=12"),
        ("epochs=0", "epochs must be at least 1", "--set epochs=12"),
        ("optimizer.learning_rate=0", "must be greater than 0", "--set optimizer.learning_rate="),
        ("optimizer.learning_rate=nan", "must be a finite number", "--set optimizer.learning_rate="),
        ("optimizer.name=adm", "must be one of adamw, adam, sgd", "--set optimizer.name=adamw"),
        ("model.dropout=1", "must be less than 1", "--set model.dropout=0.1"),
        ("onnx=maybe", "must be true or false", "--set onnx=true"),
        ("optimizer=sgd", "RECIPE --help lists them", "did you mean --set optimizer."),
        ("epochs", "--set takes key=value", "--set epochs=VALUE"),
    ],
)
def test_bad_setting_is_one_clear_error(
    assignment: str, why: str, fix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 with what, why and how to fix on a line each; the output folder isn't even made."""
    assert harness.call(tmp_path / "output", assignment) == 2
    what, second, third = capsys.readouterr().err.splitlines()
    assert what.startswith("error: ")
    assert second.startswith("  why: ")
    assert why in second
    assert third.startswith("  fix: ")
    assert fix in third
    assert not (tmp_path / "output").exists()


def test_settings_are_typed_nested_and_frozen() -> None:
    """Overrides apply left to right to copies; the original stays."""
    settings = Settings()
    changed = apply_overrides(settings, ["epochs=7", "optimizer.name=sgd", "checkpoint.every_seconds=2", "epochs=8"])
    assert (changed.epochs, changed.optimizer.name, changed.checkpoint.every_seconds) == (8, "sgd", 2.0)
    assert (settings.epochs, settings.optimizer.name) == (10, "adamw")


def test_batch_of_zero_steps_is_refused_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 before any folder is made."""
    assert harness.call(tmp_path / "output", "batch_size=5000") == 2
    assert "use --set batch_size=1437" in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_batch_that_does_not_divide_is_refused_under_torchrun(tmp_path: Path) -> None:
    """Both ranks refuse, one prints it, and there is no traceback of the trainer."""
    result = harness.run(tmp_path / "output", "batch_size=65", processes=2)
    assert result.code != 0
    assert result.err.count("batch_size 65 does not divide over 2 processes") == 1
    assert "use --set batch_size=64 or --set batch_size=66" in result.err
    assert "trainer/cli.py" not in result.err
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["digit"], "did you mean python -m trainer digits?"),
        ([], "no recipe given"),
        (["digits", "--sett", "a=1"], "invalid command line"),
        (["digits", "--config", "none.toml"], "the settings in none.toml cannot be read"),
        (["remap", "old.pth"], "see python -m trainer --help"),
    ],
)
def test_bad_command_line_is_one_clear_error(
    argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, three lines, the nearest valid thing named."""
    assert main(argv, environ={}, stop=StopFlag()) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert len(err.splitlines()) == 3


def test_contract_variable_that_is_no_number_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """KEDGE_DEADLINE=tomorrow: exit 2, the variable is named."""
    assert harness.call(tmp_path / "output", environ={"KEDGE_DEADLINE": "tomorrow"}) == 2
    assert "KEDGE_DEADLINE=tomorrow is not a number" in capsys.readouterr().err


def test_contract_names_the_folders_and_flags_take_precedence() -> None:
    """Defaults, then the environment, then arguments."""
    environ = {"KEDGE_OUTPUT_DIR": "/runs/a", "KEDGE_CHECKPOINT_DIR": "/disk/b", "KEDGE_DEADLINE": "12.5"}
    assert read_contract({}).checkpoint_dir == Path("output/checkpoints")
    contract = read_contract(environ)
    assert (contract.output_dir, contract.checkpoint_dir) == (Path("/runs/a"), Path("/disk/b"))
    assert contract.deadline_at == 12.5
    assert read_contract({"KEDGE_RUN_ID": "a"}).task_id == "a"
    assert read_contract({"KEDGE_RUN_ID": "a", "KEDGE_TASK_ID": "a-2-fast"}).task_id == "a-2-fast"
    flagged = read_contract(environ, output_dir=Path("x"), checkpoint_dir=Path("y"))
    assert (flagged.output_dir, flagged.checkpoint_dir) == (Path("x"), Path("y"))


def test_outputs_are_shown_where_the_user_finds_them(tmp_path: Path) -> None:
    """Under kedge, not on the machine, which ends with its files, but on the laptop; otherwise where they are."""
    folder = tmp_path / "machine" / "results" / "output"
    environ = {"KEDGE_OUTPUT_DIR": str(folder), "KEDGE_RUN_ID": "digits-1121-k3f9"}
    words = ["trainer", "digits", *harness.settings_args([*harness.SMALL, "epochs=1"])]
    ended = harness.finish(harness.start_python(words, env=harness.plain_environ(**environ)))
    assert ended.code == 0, ended.err
    assert "weights: kedge-results/digits-1121-k3f9/output/model.safetensors" in ended.out
    assert "results in kedge-results/digits-1121-k3f9/output\n" in ended.out
    assert str(tmp_path) not in ended.out
    assert (folder / "model.safetensors").is_file()
    later = read_contract(environ | {"KEDGE_OUTPUT_DIR": "/opt/kedge/results/2-fast/voxel/output"})
    shown = later.path_for_user(later.output_dir / "curves.png")
    assert shown == Path("kedge-results/digits-1121-k3f9/2-fast/voxel/output/curves.png")
    alone = read_contract(environ, output_dir=tmp_path)
    assert alone.path_for_user(tmp_path / "curves.png") == tmp_path / "curves.png"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--list"], "digits  "),
        (["recipes", "--json"], '"name": "digits"'),
        (["--help"], "torchrun --nproc-per-node 2"),
        (["find-lr", "--help"], "--highest"),
        (["digit", "--set", "epochs=3"], "unknown recipe digit"),
        (["none.py"], "the file doesn't exist"),
    ],
)
def test_help_list_and_refusals_do_not_wait_for_torch(argv: list[str], expected: str) -> None:
    """They answer without importing torch, NumPy or scikit-learn."""
    program = (
        "import sys, runpy, atexit\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'matplotlib'}\n"
        "atexit.register(lambda: print('loaded:', sorted(heavy & set(sys.modules))))\n"
        f"sys.argv = ['trainer', *{argv}]\n"
        "runpy.run_module('trainer', run_name='__main__')\n"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(
        command, env=harness.plain_environ(), capture_output=True, text=True, timeout=60, check=False
    )
    assert expected in ended.stdout + ended.stderr
    assert "loaded: []" in ended.stdout


def test_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file is in the output folder's place: exit 2 and a way out."""
    (tmp_path / "output").write_text("a file")
    assert harness.call(tmp_path / "output", *harness.SMALL) == 2
    assert "choose folders that can be written" in capsys.readouterr().err


def test_divergence_fails_clearly_and_is_never_checkpointed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An absurd learning rate: exit 1, state "failed" with a one-line error, no checkpoint with NaN."""
    folder = tmp_path / "output"
    code = harness.call(folder, *harness.SMALL, "optimizer.learning_rate=1e30", "checkpoint.every_steps=1")
    assert code == 1
    assert "training diverged" in capsys.readouterr().err
    status = harness.read_status(folder)
    assert status["state"] == "failed"
    assert status["error"].startswith("training diverged")
    assert "\n" not in status["error"]
    losses = [row["loss"] for row in harness.read_rows(folder)]
    assert all(math.isfinite(loss) for loss in losses if loss is not None)


def test_nan_is_written_as_null(tmp_path: Path) -> None:
    """metrics.jsonl stays JSON whatever a metric is."""
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.replace([])
    with closing(log):
        log.append({"step": 1, "epoch": 1, "loss": math.nan, "lr": math.inf})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text) == {"step": 1, "epoch": 1, "loss": None, "lr": None}
    assert "NaN" not in text


def test_rewound_metrics_drop_what_will_be_written_again(tmp_path: Path) -> None:
    """Rows after the step, the validation of an epoch not yet counted, and a truncated line are dropped."""
    path = tmp_path / "metrics.jsonl"
    kept = [{"step": 5, "epoch": 1, "loss": 1.0}, {"step": 6, "epoch": 1, "val_loss": 1.0}, {"step": 9, "epoch": 2}]
    later = [{"step": 12, "epoch": 2, "val_loss": 0.5}, {"step": 13, "epoch": 3, "loss": 0.4}]
    path.write_text("".join(json.dumps(row) + "\n" for row in (*kept, *later)) + '{"step": 14, "ep')
    log = MetricsLog(path)
    log.replace(log.rows_before(step=12, validated_at=10))
    assert read_metrics(path) == kept
