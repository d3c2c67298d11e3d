"""The job file `vesuvius` on AWS in the box, on small volumes: from Kaggle's archive to a data set with the weights.

Only sizes are other ones: a patch of 16 voxels, 2 stages of 4 filters, a few epochs, no GPU. The machines reach a
stand-in for Kaggle, with the competition's archive, that accepts only the user's token.
"""

from __future__ import annotations

import io
import json
import math
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file

from tests.adapters.aws.world import set_up
from tests.agent.sources import web
from tests.agent.sources.web import Answer, Asked, serving
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import instances
from tests.cloudbox.aws.leftovers import leftovers
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until
from tests.trainer import kaggle_server
from trainer.generators.surface import generate
from trainer.recipes.surface.networks import Variant, make_network

# Shape legend: B batch, P patches' side.
JOB = Path(__file__).parents[3] / "infra" / "jobs" / "vesuvius.yaml"
NAME = "vesuvius-challenge-surface-detection"
TOKEN = "KGAT_of-the-user"
DATASET = "me/surface-weights"
CHECKPOINTS = "/opt/kedge/results/checkpoints"
PATCH, DEPTH, FILTERS, EPOCHS = 16, 2, 4, 5
SMALL = {"PATCH": PATCH, "DEPTH": DEPTH, "BASE_FILTERS": FILTERS, "EPOCHS": EPOCHS, "WORKERS": 0, "OMP_NUM_THREADS": 1}


@dataclass
class Kaggle(web.Kaggle):
    """Serves the competition's archive, and takes data sets."""

    datasets: kaggle_server.Kaggle = field(default_factory=lambda: kaggle_server.Kaggle(accepted=frozenset()))

    def answer(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            return super().answer(asked)
        self.datasets.endpoint = self.url
        sent = asked.headers.get("authorization", "")
        status, content = self.datasets.answer(asked.method, asked.path, asked.body, sent)
        return Answer(status, json.dumps(content).encode(), {"Content-Type": "application/json"})


@pytest.fixture
def kaggle(tmp_path: Path) -> Iterator[Kaggle]:
    """Kaggle, whose storage is another host."""
    accepts = f"Bearer {TOKEN}"
    archives = {f"/api/v1/competitions/data/download-all/{NAME}": pack_competition(tmp_path / "competition")}
    datasets = kaggle_server.Kaggle(accepted=frozenset({accepts}))
    kaggle = Kaggle(archives, accepts=(accepts,), datasets=datasets)
    with serving(kaggle.storage, host="localhost"), serving(kaggle):
        yield kaggle


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account, the job file and a token of Kaggle's."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_SSH_FROM": "127.0.0.1/32", "KAGGLE_API_TOKEN": TOKEN}
    shutil.copy(JOB, laptop.home)
    box.enforce_iam()
    yield laptop
    box.enforce_iam(False)
    assert box.billing() == [], "something is left billing"
    assert leftovers(box) == []


def test_v2_is_reclaimed_goes_on_elsewhere_and_puts_its_weights_on_kaggle(
    box: Box, laptop: Laptop, kaggle: Kaggle
) -> None:
    """After the notice it saves; the next machine fetches the data again, and resumes: no step is missing or repeated.

    The token goes to Kaggle alone, and is in no result.
    """
    launch = laptop.start(*launch_words("v2", kaggle))
    wait_until(lambda: laptop.json("status", "--ledger"), pause=1)
    run = laptop.json("status", "--ledger")[0]["run"]
    reclaim_between_epochs(box, laptop, run)
    said, errors = launch.communicate(timeout=600)
    assert launch.returncode == 0, said + errors
    assert "is replaced" in said
    assert [each["InstanceType"] for each in instances(box)] == ["g4dn.xlarge"] * 2
    assert {each["InstanceLifecycle"] for each in instances(box)} == {"spot"}
    results = laptop.home / "kedge-results" / run
    assert (results / "run.log").read_text().count("spot notice") >= 1
    check_results(results, "v2")
    (published,) = kaggle.datasets.versions[DATASET]
    assert {"model.safetensors", "model.onnx", "curves.png", "metrics.jsonl", "README.md"} == set(published)
    assert all(content == (results / "output" / name).read_bytes() for name, content in published.items())
    assert kaggle.datasets.created[0]["isPrivate"]
    assert [asked.path for asked in kaggle.asked if asked.method == "GET"] == [*kaggle.files] * 2
    storage = [asked for asked in kaggle.asked if asked.path.startswith("/storage/")] + kaggle.storage.asked
    assert {asked.headers.get("authorization") for asked in storage} == {None}
    assert not [path for path in results.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_v3_trains_on_the_larger_gpu(box: Box, laptop: Laptop, kaggle: Kaggle) -> None:
    """Three networks on nested crops; its machine has an A10G."""
    laptop.kedge(*launch_words("v3", kaggle))
    (instance,) = instances(box)
    assert (instance["InstanceType"], instance["InstanceLifecycle"]) == ("g5.xlarge", "spot")
    (results,) = (laptop.home / "kedge-results").glob("vesuvius-*")
    check_results(results, "v3")
    assert len(kaggle.datasets.versions[DATASET]) == 1


def launch_words(mode: str, kaggle: Kaggle) -> list[str]:
    """Return the launch of a mode, with small sizes and the stand-in."""
    envs = SMALL | {"KAGGLE_DATASET": DATASET, "KAGGLE_API_ENDPOINT": kaggle.url, "KEDGE_TORCH_WHEEL": "none"}
    changes = [word for name, value in envs.items() for word in ("--env", f"{name}={value}")]
    return ["launch", "--job", "vesuvius", "--mode", mode, *changes, "--yes"]


def pack_competition(folder: Path) -> bytes:
    """Return an archive like the competition's: files for training, and the test's volume without labels."""
    folder.mkdir()
    generate(folder, count=4, seed=3)
    names = sorted(path.name for path in (folder / "train_images").iterdir())
    (folder / "test_images").mkdir()
    shutil.copy(folder / "train_images" / names[0], folder / "test_images" / "1407735.tif")
    (folder / "test.csv").write_text("id,scroll_id\n1407735,26002\n")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(folder))
    return packed.getvalue()


def reclaim_between_epochs(box: Box, laptop: Laptop, run: str) -> None:
    """Let AWS reclaim the machine after the first checkpoint; the training waits there until the notice has arrived."""
    training = '-f "[t]rainer surface"'
    wait_until(lambda: "booted" in laptop.kedge("exec", run, "--", "echo", "booted", code=None), seconds=240, pause=1)
    hold = f"until ls {CHECKPOINTS} | grep -q step-; do sleep 0.1; done; pkill -STOP {training}"
    laptop.kedge("exec", run, "--", "timeout", "240", "sh", "-c", hold)
    (instance,) = instances(box)
    box.reclaim(instance["InstanceId"], notice_seconds=60)
    wait_until(lambda: "spot notice" in laptop.kedge("logs", run), pause=1)
    laptop.kedge("exec", run, "--", "sh", "-c", f"pkill -CONT {training}")


def check_results(results: Path, variant: Variant) -> None:
    """Open everything that came home."""
    output = results / "output"
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    check_history(rows)
    network = make_network(variant, base_filters=FILTERS, depth=DEPTH)
    network.load_state_dict(load_file(output / "model.safetensors"))
    raw_B1PPP = torch.rand(3, 1, PATCH, PATCH, PATCH, generator=torch.Generator().manual_seed(1))
    session = onnxruntime.InferenceSession(str(output / "model.onnx"), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"input": raw_B1PPP.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(theirs, network.eval()(raw_B1PPP).numpy(), atol=1e-3)
    assert read_picture(output / "curves.png").std() > 10
    (sample,) = output.glob("samples/*/slice.png")
    slices = read_picture(sample)
    assert slices.shape == (PATCH, 3 * PATCH)
    assert slices[:, :PATCH].std() > 10, "the volume's slice isn't blank"
    assert set(np.unique(slices[:, PATCH:])) <= {0, 96, 255}
    assert list(results.glob("checkpoints/best-*.safetensors"))


def check_history(rows: list[dict[str, Any]]) -> None:
    """Each epoch is validated once, in order, and each measure is finite."""
    steps = [row["step"] for row in rows]
    assert steps == sorted(steps)
    validated = [row for row in rows if "val_score" in row]
    assert [(row["epoch"], row["step"]) for row in validated] == [(epoch, 3 * epoch) for epoch in range(1, EPOCHS + 1)]
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert 0 < validated[-1]["val_score"] <= 1


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Decode a picture."""
    with Image.open(path) as picture:
        return np.asarray(picture)
