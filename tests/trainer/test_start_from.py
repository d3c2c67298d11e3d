"""`--from`: a new run that goes on from a checkpoint with other settings; and settings that may change in place."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.trainer import harness
from tests.trainer.learners import make_learner_of
from trainer.base.config import Settings
from trainer.base.overrides import apply_overrides
from trainer.checkpoints.document import write_document
from trainer.checkpoints.store import load_checkpoint
from trainer.checkpoints.tree import flatten
from trainer.start.fingerprint import Fingerprint
from trainer.start.position import convert_position
from trainer.step.batch import plan_batch

SMALL = ("batch_size=64", "model.width=6", "curves=false", "onnx=false", "log_every_steps=1", "checkpoint.keep=99")
SAMPLES, STEPS_PER_EPOCH = 1437, 22


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs that was stopped after step 31: 9 steps into the second; read-only."""
    folder = tmp_path_factory.mktemp("stopped") / "output"
    torch.set_num_threads(1)
    assert harness.call(folder, *SMALL, "epochs=2", stop=harness.StopAtLook(38)) == 0
    assert harness.read_status(folder)["step"] == 31
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run without the stop; read-only."""
    folder = tmp_path_factory.mktemp("whole") / "output"
    torch.set_num_threads(1)
    assert harness.call(folder, *SMALL, "epochs=2") == 0
    return folder


def rates(folder: Path) -> dict[int, float]:
    return {row["step"]: row["lr"] for row in harness.read_rows(folder) if "lr" in row}


def newest(folder: Path) -> dict[str, object]:
    return load_checkpoint(harness.newest_checkpoint(folder))


# In a new folder


def test_same_settings_go_on_with_the_same_bits(stopped: Path, whole: Path, tmp_path: Path) -> None:
    """Weights, moments, position and random states are kept: only the best result starts anew."""
    folder = tmp_path / "output"
    assert harness.call(folder, *SMALL, "epochs=2", flags=("--from", stopped)) == 0
    for part in ("model", "optimizer", "rng"):
        harness.assert_equal(newest(folder)[part], newest(whole)[part], part)
    assert [row["step"] for row in harness.read_rows(folder) if "lr" in row] == list(range(32, 45))
    assert f"Started from `{harness.newest_checkpoint(stopped).name}`." in (folder / "README.md").read_text()


def test_another_batch_goes_on_at_the_same_share_of_the_schedule(
    stopped: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Step 31 of 44 in batches of 64 is step 62 of 88 in batches of 32, and what is kept and new is said."""
    folder = tmp_path / "output"
    settings = (*SMALL, "epochs=2", "batch_size=32", "schedule.warmup_steps=0", "optimizer.learning_rate=0.002")
    assert harness.call(folder, *settings, flags=("--from", harness.newest_checkpoint(stopped))) == 0
    out = capsys.readouterr().out
    assert "epoch 2 of 2, 18 of 44 steps in" in out
    assert "kept: weights, the position, the random states" in out
    assert "batch_size 64 -> 32" in out
    assert "optimizer.learning_rate 0.004 -> 0.002" in out
    assert "step 31 in batches of 64 is step 62 in batches of 32" in out
    assert "kept: the optimizer's moments of" in out
    assert sorted(rates(folder)) == list(range(63, 89))
    state = newest(folder)
    steps = {int(values["step"]) for values in state["optimizer"]["state"].values()}  # type: ignore[index]
    assert steps == {31 + 26}


def test_position_never_skips_a_sample() -> None:
    """Rounded down to whole batches; an epoch that is trained but not validated stays one."""
    plan = plan_batch(batch_size=48, world_size=1, samples=SAMPLES, epochs=5)
    begun = convert_position(epoch=3, step_in_epoch=7, batch_size=64, plan=plan, samples=SAMPLES)
    assert (begun.epoch, begun.step_in_epoch, begun.repeated) == (3, 9, 7 * 64 - 9 * 48)
    assert begun.step(plan) == 3 * plan.steps_per_epoch + 9
    trained = convert_position(epoch=3, step_in_epoch=STEPS_PER_EPOCH, batch_size=64, plan=plan, samples=SAMPLES)
    assert (trained.step_in_epoch, trained.repeated) == (plan.steps_per_epoch, 0)
    huge = plan_batch(batch_size=1000, world_size=1, samples=SAMPLES, epochs=5)
    late = convert_position(epoch=0, step_in_epoch=21, batch_size=64, plan=huge, samples=SAMPLES)
    assert (late.step_in_epoch, late.repeated) == (1, 21 * 64 - 1000)


def test_new_average_begins_with_the_weights_and_another_seed_is_said(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings that a resumed run may never change are new in a run that goes on from it."""
    folder = tmp_path / "output"
    frozen = ("epochs=2", "ema_decay=0.999", "seed=5", "optimizer.learning_rate=1e-12", "schedule.warmup_steps=0")
    assert harness.call(folder, *SMALL, *frozen, flags=("--from", stopped)) == 0
    out = capsys.readouterr().out
    assert "a moving average, from these weights on" in out
    assert "seed 0 -> 5" in out
    assert "another seed is another order" in out
    average, weights = newest(folder)["average"], newest(stopped)["model"]
    for name in ("classifier.weight", "stem.0.weight"):
        assert torch.allclose(average[name], weights[name], atol=1e-6)  # type: ignore[index]


def test_another_optimizer_of_a_new_run_has_new_moments(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Adam's are not AdamW's, as in a run that changes in place."""
    folder = tmp_path / "output"
    assert harness.call(folder, *SMALL, "epochs=2", "optimizer.name=adam", flags=("--from", stopped)) == 0
    out = capsys.readouterr().out
    assert "optimizer.name adamw -> adam" in out
    assert "new: the optimizer's moments (the checkpoint has none for this optimizer)" in out
    state = newest(folder)["optimizer"]["state"]  # type: ignore[index]
    assert {int(values["step"]) for values in state.values()} == {13}


def test_another_model_is_refused_and_nothing_is_changed(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tensors that differ are named, and --init is what helps."""
    folder = tmp_path / "output"
    assert harness.call(folder, *SMALL, "model.width=8", flags=("--from", stopped)) == 2
    err = capsys.readouterr().err
    assert "stem.0.weight is (6, 1, 3, 3) and must be (8, 1, 3, 3)" in err
    assert "--init" in err
    assert not folder.exists()


def test_checkpoints_that_a_run_cannot_go_on_from_are_refused(
    stopped: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All epochs done, best weights only, damaged, none there: exit 2, the way out, no folder."""
    damaged = tmp_path / "step-00000031.safetensors"
    content = bytearray(harness.newest_checkpoint(stopped).read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    folder = tmp_path / "output"
    for path, expected in (
        (whole, "2 epochs are done in this checkpoint"),
        (harness.best_checkpoint(whole), "has weights only"),
        (damaged, "fails its checksum"),
        (tmp_path / "nowhere", "does not load"),
    ):
        assert harness.call(folder, *SMALL, "epochs=2", flags=("--from", path)) == 2, path
        assert expected in capsys.readouterr().err
        assert not folder.exists()


def test_run_goes_on_in_its_own_folder_only_by_resuming(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--from is ignored once the run has a checkpoint; a foreign folder of results is never written into."""
    folder = tmp_path / "output"
    settings = (*SMALL, "epochs=2", "batch_size=32")
    assert harness.call(folder, *settings, flags=("--from", stopped), stop=harness.StopAtLook(6)) == 0
    at = harness.read_status(folder)["step"]
    assert at == 62 + 5
    capsys.readouterr()
    assert harness.call(folder, *settings, flags=("--from", stopped)) == 0
    out = capsys.readouterr().out
    assert "--from is ignored: this run has a checkpoint" in out
    assert f"resumed from step {at} " in out
    own = tmp_path / "own"
    shutil.copytree(stopped, own)
    assert harness.call(own, *SMALL, "epochs=2", "batch_size=32", flags=("--from", own)) == 2
    assert "batch_size was 64 and is 32" in capsys.readouterr().err


# In place


def test_rate_is_lowered_in_place_by_one_flag(
    stopped: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The change is said with its step; earlier rows keep their rates; the next start finds nothing changed."""
    folder = Path(shutil.copytree(stopped, tmp_path / "output"))
    lower = (*SMALL, "epochs=2", "optimizer.rate_factor=0.1")
    assert harness.call(folder, *lower, stop=harness.StopAtLook(4)) == 0
    line = "changed since the checkpoint: optimizer.rate_factor 1.0 -> 0.1 (from step 31 on)"
    assert line in capsys.readouterr().out
    assert harness.call(folder, *lower) == 0
    assert "changed since" not in capsys.readouterr().out
    ours, theirs = rates(folder), rates(whole)
    assert ours.keys() == theirs.keys()
    for step, rate in theirs.items():
        assert ours[step] == pytest.approx(rate if step <= 31 else rate / 10)


def test_optimizers_options_are_those_of_the_settings_not_of_the_checkpoint(stopped: Path, tmp_path: Path) -> None:
    """A weight decay that is changed in place is used: torch's own loading would bring the old one back."""
    folder = Path(shutil.copytree(stopped, tmp_path / "output"))
    assert harness.call(folder, *SMALL, "epochs=2", "optimizer.weight_decay=0.5") == 0
    groups = newest(folder)["optimizer"]["param_groups"]  # type: ignore[index]
    assert groups[0]["weight_decay"] == 0.5


def test_moments_follow_their_parameters_into_other_groups_in_place(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Norms and biases without decay are a group of their own: numbered otherwise, and their moments are kept."""
    folder = Path(shutil.copytree(stopped, tmp_path / "output"))
    assert harness.call(folder, *SMALL, "epochs=2", "optimizer.decay_norms=false") == 0
    assert "new: the optimizer's moments" not in capsys.readouterr().out
    optimizer = newest(folder)["optimizer"]
    assert len(optimizer["param_groups"]) == 2  # type: ignore[index]
    assert {int(values["step"]) for values in optimizer["state"].values()} == {44}  # type: ignore[index]


def test_another_optimizer_starts_with_new_moments_in_place(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SGD can't use those of AdamW, and Adam's mean something else: each says so, and has its own at the end."""
    for name, moments in (("sgd", {"momentum_buffer"}), ("adam", {"step", "exp_avg", "exp_avg_sq"})):
        folder = Path(shutil.copytree(stopped, tmp_path / name))
        assert harness.call(folder, *SMALL, "epochs=2", f"optimizer.name={name}") == 0
        assert f"optimizer.name adamw -> {name} (from step 31 on), with new moments" in capsys.readouterr().out
        state = newest(folder)["optimizer"]["state"]  # type: ignore[index]
        assert all(set(values) == moments for values in state.values())
    assert {int(values["step"]) for values in state.values()} == {13}


def test_checkpoint_without_a_loss_scale_can_be_gone_on_from_with_fp16() -> None:
    """bf16 has no scale: fp16 starts with a new one."""
    without, scaled = make_learner_of(["compute.amp=bf16"]), make_learner_of(["compute.amp=fp16"])
    before = scaled.precision.state()
    scaled.load(without.state())
    assert scaled.precision.state() == before


def test_checkpoint_of_the_release_before_is_resumed(stopped: Path, whole: Path, tmp_path: Path) -> None:
    """It has every setting in its fingerprint, those that have no meaning for a resumed run too, and not the newer."""
    folder = Path(shutil.copytree(stopped, tmp_path / "output"))
    newer = ("optimizer.rate_factor", "optimizer.betas", "optimizer.decay_norms", "schedule.decay", "validate.best",
             "validate.best_is")  # fmt: skip
    for path in (folder / "checkpoints").glob("*.safetensors"):
        state = load_checkpoint(path)
        older = {key: value for key, value in state["fingerprint"].items() if key not in newer}
        state["fingerprint"] = {**older, "workers": 3, "epochs": 7}
        state.pop("started_from", None)
        with path.open("wb") as stream:
            write_document(stream, flatten(state))
    assert harness.call(folder, *SMALL, "epochs=2") == 0
    harness.assert_equal(newest(folder)["model"], newest(whole)["model"], "weights")


def test_best_by_another_metric_is_not_compared(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An accuracy of 0.5 is no loss of 0.5: the change is said, and the best so far starts anew."""
    folder = Path(shutil.copytree(stopped, tmp_path / "output"))
    by_loss = ("validate.best=loss", "validate.best_is=min")
    assert harness.call(folder, *SMALL, "epochs=2", *by_loss) == 0
    out = capsys.readouterr().out
    assert "changed since the checkpoint: validate.best accuracy -> loss (from step 31 on)" in out
    assert "best val_loss" in out
    assert "after epoch 2 of 2" in (folder / "README.md").read_text()
    settings = apply_overrides(Settings(), by_loss)
    ours = Fingerprint(
        values={"validate.best": settings.validate.best}, announced=frozenset({"validate.best"}), defaults={}
    )
    progress = {"step": 31, "best": 0.5, "best_epoch": 1, "record": {"value": 0.5}, "epoch": 1}
    state, _ = ours.take_up({"fingerprint": {"validate.best": "accuracy"}, "progress": progress})
    assert state["progress"] == {"step": 31, "best": None, "best_epoch": 0, "epoch": 1}
    same, lines = ours.take_up({"fingerprint": {"validate.best": "loss"}, "progress": progress})
    assert (same["progress"], lines) == (progress, ())
