"""The job file `imagenet` on AWS in the box: two runs, one after the other, with one data volume that outlives them.

Only sizes are other ones: a ResNet-18, pictures of 32 pixels, two processes on the CPU. The machines reach stand-ins
for ImageNette's server, with drawn shapes in its archive, and for the Hub.
"""

from __future__ import annotations

import io
import json
import math
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.adapters.aws.world import set_up
from tests.agent.sources.web import Site, serving
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import instances
from tests.cloudbox.aws.leftovers import leftovers
from tests.support.laptop import Laptop
from tests.trainer.hub_server import Hub, serving_hub
from trainer.generators.imagenet import CLASSES, generate
from trainer.recipes.imagenet.network import resnet

# Shape legend: B batch, H height, W width.
JOB = Path(__file__).parents[3] / "infra" / "jobs" / "imagenet.yaml"
SERVER = "https://s3.amazonaws.com/fast-ai-imageclas"
ARCHIVE = "/imagenette2-160.tgz"
TOKEN = "hf_of-the-user"
REPO = "me/resnet18"
PICTURES, BATCH, PIXELS, EPOCHS = 24, 12, 32, 6
EXTRA = "--set model.depth=18 --set schedule.warmup_epochs=0 --set log_every_steps=1"
SMALL = {"PIXELS": PIXELS, "GPUS": 2, "BATCH_SIZE": BATCH, "AMP": "off", "WORKERS": 0, "EXTRA": EXTRA}
ON_THE_CPU = {"OMP_NUM_THREADS": 1, "KEDGE_TORCH_WHEEL": "none"}
OF_TORCHVISION = {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer2.0.downsample.1.bias", "fc.bias"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Site]:
    """ImageNette's server."""
    site = Site({ARCHIVE: pack_pictures(tmp_path / "imagenette2-160")})
    with serving(site):
        yield site


@pytest.fixture
def hub() -> Iterator[Hub]:
    """The Hub, to which only the user's token may push."""
    with serving_hub(TOKEN) as hub:
        yield hub


@pytest.fixture
def laptop(box: Box, laptop: Laptop, server: Site) -> Iterator[Laptop]:
    """A user's computer with an AWS account, a token of the Hub's, and the job file, with the stand-in's address."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_SSH_FROM": "127.0.0.1/32", "HF_TOKEN": TOKEN}
    job = JOB.read_text()
    assert SERVER + ARCHIVE in job
    (laptop.home / "imagenet.yaml").write_text(job.replace(SERVER, server.url))
    box.enforce_iam()
    yield laptop
    box.enforce_iam(False)
    assert box.billing() == [], "something is left billing"
    assert leftovers(box) == []


def test_the_second_run_trains_on_the_volume_of_the_first(box: Box, laptop: Laptop, server: Site, hub: Hub) -> None:
    """The first has it made and formatted, and downloads the data; between the two, only the volume bills.

    The second is bound to its zone, although machines are cheaper elsewhere, and finds the data: the volume was not
    formatted again. In the end the user deletes it with kedge.
    """
    laptop.kedge(*launch_words("validate", EPOCHS=1))
    (volume,) = data_volumes(box)
    assert (volume["Size"], volume["Throughput"], volume["Encrypted"]) == (500, 500, True)
    assert [(bill.kind, bill.id) for bill in box.billing()] == [("volume", volume["VolumeId"])]
    (first,) = result_folders(laptop)
    check_results(first, epochs=1)

    box.set_spot_price("g5.8xlarge", volume["AvailabilityZone"], "2.4")
    pushes = {"HUB_REPO": REPO, "HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": 1}
    said = laptop.kedge(*launch_words("small", EPOCHS=EPOCHS, **pushes), "--env", "HF_TOKEN")
    (second,) = result_folders(laptop) - {first}
    check_results(second, epochs=EPOCHS)
    check_pushes(second, hub)

    assert [asked.path for asked in server.asked] == [ARCHIVE]
    assert "imagenet/nette is on its volume already" in (second / "run.log").read_text()
    assert [each["VolumeId"] for each in data_volumes(box)] == [volume["VolumeId"]]
    machines = instances(box)
    assert [(each["InstanceType"], each["InstanceLifecycle"]) for each in machines] == [("g5.8xlarge", "spot")] * 2
    assert {each["Placement"]["AvailabilityZone"] for each in machines} == {volume["AvailabilityZone"]}
    assert TOKEN not in said + laptop.errors + laptop.kedge("logs", second.name)
    written = [path for folder in (laptop.home, laptop.state) for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]

    (listed,) = laptop.json("volumes", "--provider", "aws")["volumes"]
    assert (listed["name"], listed["id"], listed["kept"]) == ("imagenet", volume["VolumeId"], True)
    laptop.kedge("volumes", "--delete", "imagenet", "--yes")
    assert data_volumes(box) == []


def launch_words(mode: str, **envs: object) -> list[str]:
    """Return the launch of a mode, with small sizes."""
    changes = [word for name, value in (SMALL | ON_THE_CPU | envs).items() for word in ("--env", f"{name}={value}")]
    return ["launch", "--job", "imagenet", "--mode", mode, *changes, "--yes"]


def pack_pictures(folder: Path) -> bytes:
    """Return an archive like ImageNette's: train/ and val/ with a folder for each class, and a table of labels."""
    generate(folder, count=PICTURES, seed=5)
    (folder / "noisy_imagenette.csv").write_text("path,noisy_labels_0,is_valid\n")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder, folder.name)
    return packed.getvalue()


def data_volumes(box: Box) -> list[dict[str, Any]]:
    """List the volumes that are no machine's root disk."""
    filters = [{"Name": "tag-key", "Values": ["kedge-volume"]}]
    return list(box.client("ec2").describe_volumes(Filters=filters)["Volumes"])


def result_folders(laptop: Laptop) -> set[Path]:
    """Return the folders of the runs' results."""
    return set((laptop.home / "kedge-results").glob("imagenet-*"))


def check_results(results: Path, *, epochs: int) -> None:
    """Open everything that came home."""
    output = results / "output"
    rows = read_rows(output)
    steps = [row["step"] for row in rows if "val_top1" in row]
    assert steps == [epoch * PICTURES // BATCH for epoch in range(1, epochs + 1)]
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert "on 2 x " in (output / "README.md").read_text(), "two processes"
    weights = load_file(output / "model.safetensors")
    assert weights.keys() >= OF_TORCHVISION
    network = resnet(18, len(CLASSES))
    network.load_state_dict(weights)
    pictures_B3HW = torch.rand(2, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(1))
    session = onnxruntime.InferenceSession(str(output / "model.onnx"), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"input": pictures_B3HW.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(theirs, network.eval()(pictures_B3HW).numpy(), atol=1e-3)
    with Image.open(output / "curves.png") as curves:
        assert np.asarray(curves).std() > 10
    assert list(results.glob("checkpoints/best-*.safetensors"))


def check_pushes(results: Path, hub: Hub) -> None:
    """The best weights were pushed alone, when they were better than all before; at the end everything was."""
    top1 = [row["val_top1"] for row in read_rows(results / "output") if "val_top1" in row]
    best = [epoch for epoch in range(1, EPOCHS + 1) if top1[epoch - 1] > max(top1[: epoch - 1], default=-1)]
    assert len(best) < EPOCHS, "each epoch was better than those before it"
    *during, final = hub.commits
    found = [re.search(r"imagenet: val_top1 .* after epoch (\d+), step", message) for message in hub.messages[:-1]]
    pushed = [int(each[1]) for each in found if each]
    assert pushed
    assert pushed == sorted(set(pushed) & set(best))
    assert all(set(files) == {"model.safetensors"} for files in during)
    assert set(final) == {"model.safetensors", "model.onnx", "curves.png", "metrics.jsonl", "README.md"}
    assert all(content == (results / "output" / name).read_bytes() for name, content in final.items())
    assert hub.repos == {REPO: True}


def read_rows(output: Path) -> list[dict[str, Any]]:
    """Read the history of a training."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
