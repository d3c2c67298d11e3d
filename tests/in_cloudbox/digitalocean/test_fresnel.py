"""The job file `fresnel` at the AMD Developer Cloud and at DigitalOcean, in the box, on generated scenes.

Only figures are other ones: 18 pictures of 32 pixels, five epochs of eight steps, a rate that learns in so few; no GPU.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers import Context, open_backing
from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from tests.adapters.digitalocean.world import AMD_GPU, GPU, restock_mi300x
from tests.chaos.cloud_kills import unsettled
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.rest.meter import Bill
from tests.in_cloudbox.deadlines import bring_deadline_near
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until
from tests.trainer import harness
from trainer.checkpoints.loading import load
from trainer.generators import generate_data
from trainer.group.distributed import ALONE
from trainer.recipes.gaussian.decoder import GRID, GaussianDecoder

# Shape legend: B batch, D features, G patches along a side, H height, W width.
JOB = Path(__file__).parents[3] / "infra" / "jobs" / "fresnel.yaml"
PICTURES, HELD_OUT, BATCH, EPOCHS, PIXELS, WIDTH = 18, 2, 2, 5, 32, 384
EPOCH = (PICTURES - HELD_OUT) // BATCH
"""Steps of an epoch. A row is written after each tenth step, and a checkpoint after each epoch."""
SMALL = {
    **{"EPOCHS": EPOCHS, "BATCH_SIZE": BATCH, "PIXELS": PIXELS, "LEARNING_RATE": 0.003, "WORKERS": 1},
    **{"OMP_NUM_THREADS": 1, "KEDGE_TORCH_WHEEL": "none"},
}
BUCKET = "kedge-fresnel"
PROCESSES = '-f "[t]rainer gaussian"'
HOLD = f"""
cd /opt/kedge/results/2-fast
saved() {{ ls checkpoints 2>/dev/null | sed -n 's/^step-0*\\([0-9]*\\)[.]safetensors$/\\1/p' | sort -n | tail -n 1; }}
made() {{ sed -n 's/^{{"step": \\([0-9]*\\),.*"lr".*/\\1/p' output/metrics.jsonl 2>/dev/null | tail -n 1; }}
while sleep 0.2; do
    pkill -STOP {PROCESSES}
    at=$(saved) now=$(made)
    [ "${{at:-0}}" -gt AFTER ] && [ "${{now:-0}}" -gt "$at" ] && break
    pkill -CONT {PROCESSES}
done
echo "held $at"
"""
"""Stops the training when metrics.jsonl has steps that no checkpoint has, and prints the newest checkpoint's step."""


@pytest.fixture
def laptop(laptop: Laptop) -> Laptop:
    """A user's fresnel checkout, with the job file in it."""
    laptop.extra_env["KEDGE_SSH_FROM"] = "127.0.0.1/32"
    shutil.copy(JOB, laptop.home)
    generate_data("gaussian", laptop.home / "images" / "training", count=PICTURES, seed=3)
    return laptop


@pytest.fixture
def amd_user(amd_box: DigitalOceanBox, laptop: Laptop) -> Iterator[Laptop]:
    """A user with an account at the AMD Developer Cloud, whose droplets can delete themselves."""
    sign_in_to_amd(laptop, amd_box)
    yield laptop
    assert amd_box.meter.billing() == [], "something is left billing"


@pytest.fixture
def do_user(do_box: DigitalOceanBox, laptop: Laptop) -> Iterator[Laptop]:
    """A user with an account at DigitalOcean, in a month in which it sells MI300X."""
    restock_mi300x(do_box)
    laptop.extra_env |= do_box.environ
    yield laptop
    assert do_box.meter.billing() == [], "something is left billing"


@pytest.fixture
def bucket(moto: str, amd_user: Laptop) -> None:
    """A bucket of the user's, for which moto's S3 stands in."""
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    session.client("s3", endpoint_url=moto).create_bucket(Bucket=BUCKET)
    amd_user.extra_env |= {
        **{"KEDGE_SPACES_BUCKET": BUCKET, "KEDGE_SPACES_ENDPOINT": moto},
        **{"SPACES_ACCESS_KEY_ID": "DO00KEDGEBOX", "SPACES_SECRET_ACCESS_KEY": "spaces-secret"},
    }


def test_data_that_would_fail_are_refused_before_anything_is_created(amd_api: DigitalOceanBox, laptop: Laptop) -> None:
    """A file that is missing, one that is cut, and fresnel's `custom 100 512 256`, which would train no step."""
    sign_in_to_amd(laptop, amd_api)
    features = laptop.home / "images" / "training" / "features"
    depth, cut = features / "scene0007_depth.bin", features / "scene0011_dinov2.bin"
    assert "too few" in laptop.kedge("launch", "--job", "fresnel", "--mode", "custom 100 512 256", "--yes", code=2)
    depth.rename(laptop.home / "elsewhere.bin")
    cut.write_bytes(cut.read_bytes()[:1000])
    said = laptop.kedge("launch", "--job", "fresnel", "--mode", "validate", "--yes", code=2)
    assert "features/scene0007_depth.bin" in said
    assert "features/scene0011_dinov2.bin" in said
    assert "the check of the data has failed" in laptop.errors
    assert {call.method for call in amd_api.calls} <= {"GET"}
    assert laptop.json("status", "--all") == []


def test_validate_then_fast_train_on_one_droplet_of_amds_cloud(amd_box: DigitalOceanBox, amd_user: Laptop) -> None:
    """The data are checked first. Both modes' results come home, and the droplet is deleted."""
    said = amd_user.kedge("launch", "--job", "fresnel", "--modes", "validate,fast", *sizes(), "--yes")
    assert "Nothing is wrong with it." in said
    assert amd_box.droplets() == []
    (bill,) = droplet_bills(amd_box)
    assert (bill.what, bill.usd_per_hour, bill.region) == (AMD_GPU, Decimal("1.99"), "atl1")
    (results,) = (amd_user.home / "kedge-results").glob("fresnel-*")
    for mode in (results, results / "2-fast"):
        check_results(mode)
        assert "resumed from step" not in (mode / "run.log").read_text()
    assert unsettled(amd_user) == []


@pytest.mark.timeout(1500)
def test_fast_survives_a_kill_and_a_reset_of_its_droplet(do_box: DigitalOceanBox, do_user: Laptop) -> None:
    """It goes on from its newest checkpoint, and ends as validate does, which was left alone: to the bit.

    With these sizes both modes are the same training. Then the droplet is kept, and only some results are fetched.
    """
    first = ("--provider", "do", "--mode", "validate", "--keep", "--ttl", "3h", "--budget", "12", "--detach")
    run = do_user.json("launch", "--job", "fresnel", *first, *sizes(), "--yes")["run"]
    await_modes(do_user, run, "succeeded")
    do_user.kedge("start", "--mode", "fast", *sizes(), "--yes")
    killed_at = hold_training(do_user, run, after=0)
    do_user.kedge("exec", run, "--", "sh", "-c", f"pkill -KILL -o {PROCESSES}; pkill -CONT {PROCESSES}")
    reset_at = hold_training(do_user, run, after=killed_at)
    do_user.kedge("exec", run, "--admin", "--", "sudo", "systemctl", "reboot", "-ff", code=None)
    await_modes(do_user, run, "succeeded", "succeeded")
    assert [bill.what for bill in droplet_bills(do_box)] == [GPU]

    do_user.kedge("fetch", run, "--only", "best,onnx,curves,samples", "--mode", "fast", "--to", "some")
    names = {path.name for path in (do_user.home / "some").rglob("*.*") if path.is_file()}
    assert {"model.onnx", "curves.png", "target-and-rendered.png"} <= names
    assert not [name for name in names if name.startswith("step-")]
    do_user.kedge("teardown", run, "--yes")
    assert do_box.droplets() == []
    assert unsettled(do_user) == []

    validate = do_user.home / "kedge-results" / run
    fast = validate / "2-fast"
    for mode in (validate, fast):
        check_results(mode)
    log = (fast / "run.log").read_text()
    assert [int(step) for step in re.findall(r"resumed from step (\d+)", log)] == [killed_at, reset_at]
    assert harness.rows_without_speed(fast / "output") == harness.rows_without_speed(validate / "output")
    ends = [load(harness.newest_checkpoint(mode), ALONE) for mode in (fast, validate)]
    for part in ("model", "optimizer"):
        harness.assert_equal(ends[0][part], ends[1][part], part)


@pytest.mark.usefixtures("bucket")
def test_the_droplet_saves_and_deletes_itself_at_its_deadline_without_a_laptop(
    amd_box: DigitalOceanBox, amd_user: Laptop, tmp_path: Path
) -> None:
    """The launch was killed, and its computer is lost. Whoever has the bucket's keys finds a checkpoint of the end."""
    launch = amd_user.start("launch", "--job", "fresnel", *sizes(EPOCHS=100_000), "--yes")
    wait_until(lambda: "epoch 2/100000" in amd_user.kedge("logs", code=None), seconds=400, pause=1)
    run = amd_user.json("status", "--ledger")[0]["run"]
    launch.kill()
    launch.wait()
    bring_deadline_near(amd_user, seconds=60)
    shutil.rmtree(amd_user.state)
    wait_until(lambda: amd_box.droplets() == [], seconds=240, pause=0.5)

    other = tmp_path / "other"
    context = Context(
        state_dir=other, runtime_dir=other, clock=SystemClock(), key_file=other, environ=amd_user.extra_env
    )
    store = open_backing("amd", context).store
    assert store
    store.fetch(run, str(tmp_path / "home"), lambda *_: None)
    status = harness.read_status(tmp_path / "home" / "output")
    newest = harness.newest_checkpoint(tmp_path / "home")
    assert (status["state"], newest.name) == ("stopped", f"step-{status['step']:08}.safetensors")
    assert status["step"] > 2 * EPOCH
    network().load_state_dict(load(newest, ALONE)["model"])
    steps = [row["step"] for row in finite_rows(tmp_path / "home")]
    assert steps == sorted(steps)
    assert status["step"] - steps[-1] <= EPOCH


def sign_in_to_amd(laptop: Laptop, box: DigitalOceanBox) -> None:
    """Give a laptop the account's tokens; the variables for testing are those of DigitalOcean."""
    shared = {name: box.environ[name] for name in ("KEDGE_DIGITALOCEAN_CA", "KEDGE_DIGITALOCEAN_METADATA")}
    tokens = {"AMD_DEVCLOUD_TOKEN": box.token, "KEDGE_AMD_DELETE_TOKEN": box.make_token(*SCOPES)}
    laptop.extra_env |= {**shared, **tokens, "KEDGE_AMD_ENDPOINT": box.endpoint}


def sizes(**changes: int) -> list[str]:
    """Return the words that make a launch or a start small."""
    return [word for name, value in {**SMALL, **changes}.items() for word in ("--env", f"{name}={value}")]


def droplet_bills(box: DigitalOceanBox) -> list[Bill]:
    """List the bills of all droplets, also of those that are gone."""
    return [bill for bill in box.meter.bills() if bill.kind == "droplet"]


def await_modes(laptop: Laptop, run: str, *outcomes: str) -> None:
    """Wait until the run's modes have these outcomes."""
    wait_until(
        lambda: tuple(mode["outcome"] for mode in laptop.json("status", run)[0]["modes"]) == outcomes,
        seconds=400,
        pause=1,
    )


def hold_training(laptop: Laptop, run: str, *, after: int) -> int:
    """Hold the second mode's training when it has a checkpoint of a later step, and has made more; return that step."""
    said = laptop.kedge("exec", run, "--", "timeout", "240", "sh", "-c", HOLD.replace("AFTER", str(after)))
    return int(said.split("held ")[1])


def check_results(results: Path) -> None:
    """Open everything that came home of a mode."""
    output = results / "output"
    rows = finite_rows(results)
    assert [row["step"] for row in rows if "lr" in row] == [10, 20, 30, 40]
    validated = [row for row in rows if "val_psnr" in row]
    assert [(row["epoch"], row["step"]) for row in validated] == [
        (epoch, EPOCH * epoch) for epoch in range(1, EPOCHS + 1)
    ]
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)
    assert validated[-1]["val_psnr"] > validated[0]["val_psnr"] + 2
    best = max(validated, key=lambda row: float(row["val_psnr"]))
    assert [path.name for path in results.glob("checkpoints/best-*")] == [f"best-{best['step']:08}.safetensors"]
    check_network(output)
    assert read_picture(output / "curves.png").std() > 10
    check_sample(output / "samples" / f"epoch-{EPOCHS:06}" / "target-and-rendered.png", validated[-1]["val_psnr"])


def finite_rows(results: Path) -> list[dict[str, Any]]:
    """Read metrics.jsonl, and check that each value is finite."""
    rows = [json.loads(line) for line in (results / "output" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(value) for row in rows for value in row.values())
    return rows


def network() -> GaussianDecoder:
    """Make the network of the job file's sizes, with new weights."""
    return GaussianDecoder(WIDTH, per_patch=4, dropout=0.1)


def check_network(output: Path) -> None:
    """The weights are the recipe's network's, and the ONNX file computes the same Gaussians."""
    decoder = network()
    decoder.load_state_dict(load_file(output / "model.safetensors"))
    generator = torch.Generator().manual_seed(1)
    features_BDGG = torch.randn(2, WIDTH, GRID, GRID, generator=generator)
    depth_B1HW = torch.rand(2, 1, 518, 518, generator=generator)
    with torch.no_grad():
        ours = [part.numpy() for part in decoder.eval()(features_BDGG, depth_B1HW)]
    session = onnxruntime.InferenceSession(str(output / "model.onnx"), providers=["CPUExecutionProvider"])
    theirs = session.run(
        ["positions", "scales", "rotations", "colors", "opacities"],
        {"features": features_BDGG.numpy(), "depth": depth_B1HW.numpy()},
    )
    theirs[2] *= np.sign((ours[2] * theirs[2]).sum(-1, keepdims=True))  # a quaternion and its negative are one rotation
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


def check_sample(path: Path, psnr: float) -> None:
    """Held-out pictures are on the left; what is rendered has the PSNR that was measured, and isn't flat."""
    pixels = read_picture(path).astype(float).reshape(HELD_OUT, PIXELS, 2, PIXELS, 3)
    targets, rendered = pixels[:, :, 0], pixels[:, :, 1]
    errors = ((targets - rendered) ** 2).mean((1, 2, 3))
    assert (20 * math.log10(255) - 10 * np.log10(errors)).mean() == pytest.approx(psnr, abs=0.1)
    assert targets.std() > 20
    assert rendered.std((1, 2)).min() > 10


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Decode a picture."""
    with Image.open(path) as picture:
        return np.asarray(picture)
