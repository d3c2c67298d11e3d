"""`publish.hub_during`: new best weights are pushed during the training."""

import subprocess
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file

from tests.trainer import harness
from tests.trainer.hub_server import Hub, serving_hub
from trainer.base.errors import PublishError
from trainer.base.hub import HubAccess
from trainer.checkpoints.store import CheckpointStore, Rating
from trainer.checkpoints.tree import flatten
from trainer.report.publish.best_push import BestPusher
from trainer.report.publish.hub import push

TOKEN = "hf_secret"
PUSHING = ("publish.hub_repo=me/digits", "publish.hub_during=true")
RUN = (*harness.SMALL, *PUSHING, "epochs=8")


def save_best(store: CheckpointStore, step: int, accuracy: float) -> Path:
    """Save weights that are all `accuracy`, and return their file."""
    rating = Rating(metric="val_accuracy", value=accuracy, best_is="max")
    state = {"fingerprint": {}, "epoch": step // 10, "step": step, "rating": rating.dump()}
    model = {"w": torch.full((4,), accuracy)}
    store.save_best(flatten({**state, "model": model}), step=step, rating=rating)
    return store.folder / f"best-{step:08d}.safetensors"


class Pushes:
    """Notes what is pushed; a push waits for `go`, and fails as often as `failures` says."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.accuracies: list[float] = []
        self.messages: list[str] = []
        self.began, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, file: Path, message: str) -> None:
        self.began.release()
        assert self.go.acquire(timeout=60)
        if self.failures:
            self.failures -= 1
            raise PublishError("not pushed", why="the Hub is down", fix="wait")
        self.accuracies.append(float(load_file(file)["w"][0]))
        self.messages.append(message)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    store = CheckpointStore(tmp_path / "checkpoints", keep=1, fingerprint={})
    store.prepare()
    return store


def test_of_several_bests_during_one_push_only_the_last_follows(store: CheckpointStore) -> None:
    """The first is replaced on the disk while it is uploaded, and arrives whole nevertheless."""
    pushes, said = Pushes(), list[str]()
    pusher = BestPusher(store, pushes, said.append, seconds=0.01)
    save_best(store, 10, 0.5)
    pusher.start()
    assert pushes.began.acquire(timeout=60)
    save_best(store, 20, 0.625)
    last = save_best(store, 30, 0.75)
    assert store.list_best() == [last]
    pushes.go.release(2)
    harness.wait_until(lambda: len(pushes.accuracies) == 2, "both pushes")
    pusher.close()
    pusher.wait()
    assert pushes.accuracies == [0.5, 0.75]
    assert pushes.messages[1] == "val_accuracy 75.00% after epoch 3, step 30"
    assert said[0] == "pushed the best weights: val_accuracy 50.00% after epoch 1, step 10"
    assert [path.name for path in store.folder.iterdir()] == [last.name]


def test_weights_that_are_no_better_are_not_pushed(store: CheckpointStore) -> None:
    pushes = Pushes()
    pushes.go.release(9)
    pusher = BestPusher(store, pushes, lambda _: None, seconds=0.01)
    save_best(store, 10, 0.5)
    pusher.start()
    harness.wait_until(lambda: len(pushes.accuracies) == 1, "the first push")
    save_best(store, 20, 0.25)
    save_best(store, 30, 0.75)
    harness.wait_until(lambda: len(pushes.accuracies) == 2, "the second push")
    pusher.close()
    pusher.wait()
    assert pushes.accuracies == [0.5, 0.75]


def test_push_that_fails_is_one_line_and_the_next_best_is_pushed(store: CheckpointStore) -> None:
    pushes, said = Pushes(failures=1), list[str]()
    pushes.go.release(9)
    pusher = BestPusher(store, pushes, said.append, seconds=0.01)
    save_best(store, 10, 0.5)
    pusher.start()
    harness.wait_until(lambda: bool(said), "the failure")
    assert said == ["the best weights were not pushed, and training goes on: the Hub is down"]
    save_best(store, 20, 0.75)
    harness.wait_until(lambda: pushes.accuracies == [0.75], "the next push")
    pusher.close()
    pusher.wait()


def test_hub_that_hangs_and_refuses_does_not_stall_a_training(tmp_path: Path) -> None:
    """The Hub answers no commit until the last step is done, and refuses the first: the run succeeds all the same."""
    folder = tmp_path / "output"
    with serving_hub(TOKEN) as hub:
        hub.open.clear()
        hub.refusals = 1
        process = start(folder, hub)
        harness.wait_for_step(folder, 8 * harness.STEPS_PER_EPOCH, process)
        assert hub.commits == []
        hub.open.set()
        ended = harness.finish(process)
        assert ended.code == 0, ended.err
        final = hub.commits[-1]
    assert "the best weights were not pushed, and training goes on: " in ended.out
    assert {"README.md", "model.safetensors"} <= set(final)
    assert final["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert TOKEN.encode() not in written
    assert TOKEN not in ended.out + ended.err


def test_hub_that_never_answers_does_not_keep_a_finished_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has no time limit of its own: the push is given up after the time that it may take."""
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    with serving_hub(TOKEN) as hub:
        hub.open.clear()
        access = HubAccess(token=TOKEN, endpoint=hub.endpoint, patience=20)
        with pytest.raises(PublishError) as caught:
            push("me/digits", {file.name: file}, access, private=True, message="the last one")
        hub.open.set()
    assert caught.value.why == "the Hub has not answered within 20 s"


def test_best_weights_arrive_before_the_run_ends(tmp_path: Path) -> None:
    """Stopped after the first push: one commit with the weights alone, which are those of a best checkpoint."""
    folder = tmp_path / "output"
    with serving_hub(TOKEN) as hub:
        process = start(folder, hub, "epochs=500")
        harness.wait_until(lambda: bool(hub.commits), "a push", process)
        process.terminate()
        ended = harness.finish(process)
        assert ended.code == 0, ended.err
        assert set(hub.commits[0]) == {"model.safetensors"}
        assert hub.messages[0].startswith("digits: val_accuracy ")
        weights = load(hub.commits[0]["model.safetensors"])
        last = load_file(harness.best_checkpoint(folder))
        assert {name: tensor.shape for name, tensor in weights.items()} == {
            name: tensor.shape for name, tensor in last.items()
        }
    assert harness.read_status(folder)["state"] == "stopped"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("publish.hub_during=true",), "has no repository to push to"),
        ((*PUSHING, "compute.fully_shard=true"), "does not work with compute.fully_shard"),
    ],
)
def test_what_can_not_be_pushed_is_refused_before_the_start(
    settings: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness.call(tmp_path / "output", *settings, environ={"HF_TOKEN": TOKEN}) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def start(folder: Path, hub: Hub, *settings: str) -> subprocess.Popen[str]:
    return harness.start(
        folder,
        *RUN,
        *settings,
        HF_TOKEN=TOKEN,
        HF_ENDPOINT=hub.endpoint,
        HF_HOME=str(folder.parent / "hf"),
        HF_HUB_DISABLE_XET="1",  # the stand-in has git-lfs's protocol only
        NO_PROXY="127.0.0.1",
    )
