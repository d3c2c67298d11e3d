"""A spot machine gets an interruption notice: the command's work is in the store before the machine is gone."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection

import pytest

from orchestrator.core.protocol.report import SPOT_NOTICE
from tests.agent.aws import Aws, Fault
from tests.agent.box import Box, wait_for
from tests.agent.places import S3Place, manifest_of, uploaded

MakeBox = Callable[..., Box]
TRAIN = """\
trap 'sleep 0.3; echo saved > "$KEDGE_CHECKPOINT_DIR/last.pt"; exit 1' TERM
echo up
while true; do
  if [ -e "$KEDGE_NOTICE_FILE" ]; then echo "noticed $(cat "$KEDGE_NOTICE_FILE")"; rm "$KEDGE_NOTICE_FILE"; fi
  sleep 0.05
done
"""


@pytest.fixture
def place(aws: Aws) -> S3Place:
    return S3Place(aws)


@pytest.fixture
def spot(make_box: MakeBox, place: S3Place) -> Box:
    """A spot machine that runs a command; its next regular upload would be in an hour."""
    box = make_box(store_url=place.url, env=place.env, metadata="aws", ship_every=3600.0)
    box.begin("watch")
    box.start(TRAIN, restarts=3)
    wait_for(lambda: " up\n" in box.log())
    return box


def test_a_notice_stops_the_command_and_uploads_what_it_saves(aws: Aws, place: S3Place, spot: Box) -> None:
    """Within seconds, whatever the interval; the reason isn't a user's stop, and the report has the machine's end."""
    began = time.monotonic()
    at = aws.imds.warn()
    wait_for(lambda: manifest_of(place).get("command", {}).get("state") == "stopped")
    took = time.monotonic() - began
    print(f"from the notice to the complete copy: {took:.1f} s")
    assert uploaded(place)["checkpoints/last.pt"] == b"saved\n"
    assert took < 60
    command = spot.command()
    assert (command["state"], command["reason"]) == ("stopped", SPOT_NOTICE)
    wait_for(lambda: spot.report()["notice"] == at)
    assert manifest_of(place)["command"]["reason"] == SPOT_NOTICE
    assert "spot notice: the machine will be interrupted in 1" in spot.log()


@pytest.mark.parametrize(("grace", "told"), [(300, range(1, 56)), (5, [5])])
def test_the_log_says_how_long_the_command_really_has(
    aws: Aws, place: S3Place, make_box: MakeBox, grace: int, told: Collection[int]
) -> None:
    """Until the machine is gone, if that is sooner than the grace period."""
    box = make_box(store_url=place.url, env=place.env, metadata="aws", ship_every=3600.0)
    box.begin("watch")
    box.start(TRAIN, restarts=3, grace=grace)
    wait_for(lambda: " up\n" in box.log())
    aws.imds.warn(seconds=56)
    box.await_state("stopped")
    (said,) = re.findall(r"asked to stop: spot notice; it has (\d+) s to checkpoint", box.log())
    assert int(said) in told


def test_a_copy_that_fails_under_notice_is_tried_again_at_once(aws: Aws, place: S3Place, spot: Box) -> None:
    """It doesn't wait for the next interval."""
    aws.gate.faults += [Fault("PUT", "manifest.json", status=403, code="AccessDenied")] * 2
    aws.imds.warn()
    wait_for(lambda: manifest_of(place).get("command", {}).get("state") == "stopped")
    assert aws.gate.faults == []
    assert uploaded(place)["checkpoints/last.pt"] == b"saved\n"


def test_checkpoints_are_uploaded_while_a_command_takes_long_to_stop(
    aws: Aws, place: S3Place, make_box: MakeBox
) -> None:
    """Complete checkpoints are uploaded even if the command never stops."""
    box = make_box(store_url=place.url, env=place.env, metadata="aws", ship_every=3600.0)
    box.begin("watch")
    box.start(
        """trap 'echo 1 > "$KEDGE_CHECKPOINT_DIR/a.pt"' TERM; echo up; while true; do sleep 0.05; done""", grace=100
    )
    wait_for(lambda: " up\n" in box.log())
    aws.imds.warn()
    wait_for(lambda: manifest_of(place).get("checkpoint") == "a.pt")
    assert box.command()["state"] == "stopping"


def test_a_command_started_on_a_machine_under_notice_is_stopped(aws: Aws, spot: Box) -> None:
    """The notice holds for every new runner, whoever starts it."""
    aws.imds.warn()
    spot.await_state("stopped")
    spot.start(TRAIN)
    assert spot.await_state("stopped")["reason"] == SPOT_NOTICE


def test_a_withdrawn_notice_no_longer_counts(aws: Aws, spot: Box) -> None:
    """A command that is started afterwards keeps running."""
    aws.imds.warn()
    spot.await_state("stopped")
    # The watch stops the command before it reports why.
    wait_for(lambda: spot.report()["notice"])
    del aws.imds.facts["spot/instance-action"]
    wait_for(lambda: spot.report()["notice"] == 0)
    spot.start("sleep 1; echo went on")
    assert spot.await_state("stopped", "succeeded")["state"] == "succeeded"


def test_a_user_s_stop_stays_a_user_s_stop(aws: Aws, make_box: MakeBox, place: S3Place) -> None:
    """A notice during the stop doesn't make the run continue on another machine."""
    box = make_box(store_url=place.url, env=place.env, metadata="aws")
    box.begin("watch")
    box.start("trap 'sleep 1.5; exit 0' TERM; echo up; while true; do sleep 0.05; done")
    wait_for(lambda: " up\n" in box.log())
    stop = box.begin("stop", "--reason", "enough")
    box.await_state("stopping")
    aws.imds.warn()
    wait_for(lambda: box.report()["notice"])
    assert stop.wait(timeout=120) == 0
    assert box.command()["reason"] == "enough"


def test_a_recommendation_asks_for_one_checkpoint(aws: Aws, spot: Box) -> None:
    """Once for each recommendation, also after the watch restarts; the command isn't stopped."""
    aws.imds.recommend(1_000_000)
    wait_for(lambda: "noticed rebalance recommendation" in spot.log())
    time.sleep(0.7)
    assert spot.log().count("noticed ") == 1
    aws.imds.recommend(2_000_000)
    wait_for(lambda: spot.log().count("noticed ") == 2)
    # Recorded after the command has been asked.
    wait_for(lambda: json.loads((spot.root / "spot.json").read_text())["rebalance"] == "1970-01-24T03:33:20Z")
    assert spot.command()["state"] == "running"
    assert spot.report()["notice"] == 0


def test_a_metadata_service_that_fails_disturbs_nothing(make_box: MakeBox) -> None:
    """The failure is logged once; heartbeat and deadline continue."""
    env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}
    box = make_box(metadata="aws", env=env)
    box.begin("watch")
    wait_for(lambda: "watch, spot: ConnectionRefusedError" in box.log())
    beat = wait_for(lambda: box.note("heartbeat"))
    wait_for(lambda: box.note("heartbeat") != beat)
    assert box.log().count("watch, spot:") == 1
