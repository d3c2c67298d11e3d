"""Which step a checkpoint is of, by its name and by its content, and which of two is further."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from orchestrator.agent.results.attempt import parse_attempt
from orchestrator.agent.results.checkpoint_formats import is_whole, read_counts
from orchestrator.agent.results.checkpoint_order import CheckpointProgress, furthest, list_checkpoints, read_progress


def make(path: Path, content: bytes = b"x" * 100) -> CheckpointProgress:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    found = read_progress(path)
    assert found is not None
    return found


def read_step(path: Path) -> int | None:
    return next(iter(read_counts(path).values()), None)


def save(path: Path, **content: Any) -> None:
    """Save what a training script saves: a model and its optimizer."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **content}, path)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("ckpt-000650.pt", 650),
        ("checkpoint_650", 650),
        ("step-00001234.safetensors.bin", 1234),
        ("epoch=3-step=650.ckpt", 650),
        ("epoch=03-val_loss=0.32.ckpt", 3),
        ("model_650.bin", 650),
        ("ckpt.bin", None),
    ],
)
def test_names_say_steps(tmp_path: Path, name: str, step: int | None) -> None:
    """A word such as step or epoch counts most; decimal numbers don't count."""
    assert make(tmp_path / name).step == step


def test_files_of_torch_say_steps(tmp_path: Path) -> None:
    """From the outermost dictionary, not from a configuration in it; no code in the file runs."""
    save(tmp_path / "nano.pt", iter_num=650, config={"step": 100_000, "epoch": 7})
    save(tmp_path / "imagenet.pth", epoch=12, only={"step": 5})
    save(tmp_path / "lightning.ckpt", epoch=3, global_step=70_000)
    save(tmp_path / "none.pt", best=1.5)
    steps = [read_step(tmp_path / name) for name in ("nano.pt", "imagenet.pth", "lightning.ckpt", "none.pt")]
    assert steps == [650, 12, 70_000, None]


@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickles_of_every_protocol_say_steps(tmp_path: Path, protocol: int) -> None:
    """Whatever comes before it in the pickle."""
    content = {"w": np.zeros(10), "x": {"step": 5}, "y": {"step": 5, "epoch": 6}, "epoch": 12}
    (tmp_path / "last.pkl").write_bytes(pickle.dumps(content, protocol))
    assert read_step(tmp_path / "last.pkl") == 12


@pytest.mark.parametrize(("objects", "step"), [(10, 12), (1_000_000, None)])
def test_a_pickle_of_very_many_objects_is_not_read_to_its_end(tmp_path: Path, objects: int, step: int | None) -> None:
    """A command waits for the result before it starts: no step is better than a step after a minute."""
    (tmp_path / "last.pkl").write_bytes(b"\x80\x02" + b"N" * objects + pickle.dumps({"epoch": 12}, 2)[2:])
    assert read_step(tmp_path / "last.pkl") == step


def test_truncated_files_are_recognised(tmp_path: Path) -> None:
    """Files of torch, NumPy and safetensors, pickles and JSON; other formats can't be judged."""
    save(tmp_path / "a.pt", iter_num=650)
    np.savez(tmp_path / "a.npz", w=np.zeros(100))
    header = json.dumps({"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(36))
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"w": [1.5] * 100}))
    (tmp_path / "a.json").write_text(json.dumps({"step": 3}))
    for path in sorted(tmp_path.iterdir()):
        assert is_whole(path) is True, path
        path.write_bytes(path.read_bytes()[:-5])
        assert is_whole(path) is False, path
    assert is_whole(Path(__file__)) is None


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        (b'{"step": 1}\n{"step": 2}\n', None),
        (b'{"step": 1}\n{"step"', None),
        (b'{"zero": 2} // DeepSpeed reads comments', None),
        (b'{\n// a comment\n"zero": 2}', None),
        (b"no JSON at all", None),
        (b'{"a": {"b": 1}', False),
        (b'{"a": "]', False),
        (b'{"a": 1.', False),
        (b'{"a": tru', False),
        (b"", False),
    ],
)
def test_valid_json_dialects_are_not_truncated(tmp_path: Path, content: bytes, verdict: bool | None) -> None:
    """JSON Lines grow, and comments are allowed: a checkpoint with such a file is copied like any other."""
    (tmp_path / "metrics.json").write_bytes(content)
    assert is_whole(tmp_path / "metrics.json") is verdict


def test_a_header_that_is_too_long_to_read_is_not_truncated(tmp_path: Path) -> None:
    """Safetensors allows longer headers than are read here; a header that is longer than its file is truncated."""
    length = (17 << 20).to_bytes(8, "little")
    file = tmp_path / "experts.safetensors"
    file.write_bytes(length + b" " * (17 << 20))
    assert is_whole(file) is None
    file.write_bytes(length + b" " * 1000)
    assert is_whole(file) is False


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_damaged_archive_raises_nothing(tmp_path: Path, method: int) -> None:
    """The watch calls this, and would upload nothing more after an exception."""
    file = tmp_path / "last.zip"
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("data.pkl", pickle.dumps({"step": 3, "rest": list(range(500))}))
    content = bytearray(file.read_bytes())
    content[40:80] = bytes(40)
    file.write_bytes(content)
    assert read_step(file) is None
    assert make(tmp_path / "last.zip", bytes(content)).step is None


@pytest.mark.parametrize("content", [b"\x80\x04garbage.", b"PK\x03\x04" + bytes(50), b"\x80\x02]q", b'{"step": 1e999}'])
def test_damaged_files_have_no_step(tmp_path: Path, content: bytes) -> None:
    """No exception is raised for it."""
    (tmp_path / "last.pt").write_bytes(content)
    assert read_step(tmp_path / "last.pt") is None


def standing(
    name: str, step: int | None, size: int = 1000, kind: str = "content", epoch: int | None = None
) -> CheckpointProgress:
    return CheckpointProgress(name, size, 0.0, step, kind if step is not None else "", epoch)


def test_epochs_are_found_beside_steps(tmp_path: Path) -> None:
    """In names and in files."""
    save(tmp_path / "ckpt.pt", epoch=4, step=100)
    found = [read_progress(tmp_path / "ckpt.pt"), make(tmp_path / "epoch_4-step_100.bin"), make(tmp_path / "a-7.bin")]
    assert [each and (each.step, each.epoch) for each in found] == [(100, 4), (100, 4), (7, None)]


@pytest.mark.parametrize(
    ("first", "before", "is_behind"),
    [
        (standing("ckpt.pt", 50), standing("ckpt.pt", 650), True),
        (standing("ckpt.pt", 700), standing("ckpt.pt", 650), False),
        (standing("ckpt.pt", 650), standing("ckpt.pt", 650), False),
        (standing("ckpt-50.bin", 50, kind="number"), standing("ckpt-650.bin", 650, kind="number"), True),
        # One of three files that are used in turn.
        (standing("ckpt-0.bin", 0, kind="number"), standing("ckpt-2.bin", 2, kind="number"), None),
        # Some count steps from the beginning of each epoch.
        (standing("ckpt.pt", 100, epoch=4), standing("ckpt.pt", 900, epoch=3), False),
        (standing("ckpt.pt", 950, epoch=0), standing("ckpt.pt", 900, epoch=3), True),
        (standing("ckpt.pt", 50, epoch=0), standing("ckpt.pt", 650, epoch=0), True),
        # Its name ends with a time of day, or with a score.
        (standing("ckpt-1122-0005.bin", 5, kind="number"), standing("ckpt-1121-1755.bin", 1755, kind="number"), None),
        # The best weights are not a later version of the whole state.
        (standing("best.pt", 50), standing("ckpt.pt", 650), None),
        (standing("ckpt.bin", None, 400), standing("ckpt.bin", None, 1000), True),
        (standing("ckpt.bin", None, 900), standing("ckpt.bin", None, 1000), None),
    ],
)
def test_which_is_further(first: CheckpointProgress, before: CheckpointProgress, is_behind: bool | None) -> None:
    """By steps, else a much smaller file is behind; if nobody can know, there is no claim."""
    assert first.is_behind(before) is is_behind


def test_the_furthest_of_each_series_counts(tmp_path: Path) -> None:
    """A command that starts from scratch beside its old checkpoints is compared with those."""
    made = [make(tmp_path / f"checkpoint-{step}.bin") for step in (650, 50)]
    assert [each.step for each in furthest([*made, make(tmp_path / "best.bin")])] == [650, None]


def test_logs_beside_checkpoints_are_not_the_newest(tmp_path: Path) -> None:
    """Neither are unfinished or empty files, or links."""
    made = make(tmp_path / "checkpoint-50/state.bin")
    for name in ("runs/events.out.tfevents.1700000000", "log.txt", "metrics.csv", "args.json", "logs-70/train.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
        assert read_progress(tmp_path / name) is None
    (tmp_path / "model.txt").write_text("what trees of LightGBM are saved as")
    (tmp_path / "metrics.json").write_text('{"epoch": 70}')
    make(tmp_path / "checkpoint-60.tmp/state.bin")
    make(tmp_path / "checkpoint-70", b"")
    (tmp_path / "latest").symlink_to("checkpoint-50")
    assert made.step is None
    assert [each.name for each in list_checkpoints(tmp_path)] == ["checkpoint-50", "metrics.json", "model.txt"]


@pytest.mark.parametrize("raw", [{}, {"began": "now"}, {"began": -1}, {"began": 1e99}, {"began": float("nan")}])
def test_another_machine_s_report_of_its_attempts_is_checked(raw: dict[str, Any]) -> None:
    """Impossible values count as no attempt at all."""
    assert parse_attempt({"had": [], **raw}).began == 0
    row = {"name": "a", "bytes": 1, "written": 1.0, "step": 2, "kind": "step"}
    rows = [row, 7, {"name": 3}, {**row, "step": "x"}, *[row] * 100]
    assert [each.step for each in parse_attempt({"began": 1.0, "had": rows}).had[:2]] == [2, None]
    assert len(parse_attempt({"began": 1.0, "had": rows}).had) <= 50
