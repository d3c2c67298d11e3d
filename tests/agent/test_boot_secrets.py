"""Secrets of a machine that starts its command by itself: from its supplies, or from AWS's parameter store."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from orchestrator.agent.base.errors import AgentError
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.wire import BootOrder
from orchestrator.agent.boot import secrets
from orchestrator.agent.s3.imds import ENDPOINT_VARIABLE
from tests.agent.aws import REGION, Aws, Fault
from tests.agent.boots import order, outcomes, readiness, sha256_of
from tests.agent.box import RUN, Box, wait_for
from tests.agent.configs import encode
from tests.agent.places import FolderPlace

MakeBox = Callable[..., Box]

NAMES = [f"SECRET_{number}" for number in range(12)]
VALUES = {name: f'value "{name}" {{x}}\n' for name in NAMES} | {"SECRET_3": ""}
PATH = f"/kedge/runs/{RUN}/m1"
RUN_IT = 'printf "%s|%s" "$SECRET_0" "$SECRET_3" >"$KEDGE_OUTPUT_DIR/seen"'


@pytest.fixture
def aws_box(make_box: MakeBox, aws: Aws, tmp_path: Path) -> Box:
    """A machine with a role, whose other orders are in a folder."""
    place = FolderPlace(tmp_path / "store")
    box = make_box(store_url=place.url, env={ENDPOINT_VARIABLE: aws.imds.url})
    order_run(box, place, secrets_url=url_of(aws))
    return box


@pytest.fixture
def parameters(moto: str) -> Iterator[Any]:
    """The parameter store, as the laptop sees it."""
    client = boto3.client(
        "ssm", endpoint_url=moto, region_name=REGION, aws_access_key_id="laptop", aws_secret_access_key="s"
    )
    yield client
    client.delete_parameters(Names=[f"{PATH}/{name}" for name in NAMES[:10]])
    client.delete_parameters(Names=[f"{PATH}/{name}" for name in NAMES[10:]])
    client.close()


def order_run(box: Box, place: FolderPlace, **fields: Any) -> None:
    start = encode(box.config(RUN_IT))
    place.write("start.json", start)
    order(box, start_sha256=sha256_of(start), secrets=NAMES, **fields)


def url_of(aws: Aws) -> str:
    return f"ssm://{REGION}{PATH}?endpoint={aws.gate.url}"


def put(client: Any, name: str) -> None:
    client.put_parameter(Name=f"{PATH}/{name}", Value=json.dumps(VALUES[name]), Type="SecureString")


def assert_given(box: Box) -> None:
    """The command got its secrets; they are in the one file for them, and in no other."""
    box.await_state("succeeded")
    seen = box.root / "results/output/seen"
    assert seen.read_text() == f"{VALUES['SECRET_0']}|"
    kept = box.root / "secrets.json"
    assert json.loads(kept.read_text()) == VALUES
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    files = [path for path in box.root.rglob("*") if path.is_file() and path not in (kept, seen)]
    assert not [path for path in files if b'value \\"SECRET' in path.read_bytes() or b'value "S' in path.read_bytes()]


def test_secrets_come_with_the_supplies(make_box: MakeBox, tmp_path: Path) -> None:
    """Once the command has them, their first file is removed."""
    place = FolderPlace(tmp_path / "store")
    box = make_box(store_url=place.url)
    order_run(box, place)
    (box.root / "private").mkdir(mode=0o700)
    (box.root / "private/run-secrets.json").write_text(json.dumps(VALUES))
    assert box.call("boot").returncode == 0
    assert outcomes(box.root) == [("agent", True), ("code", True), ("secrets", True), ("start", True)]
    assert_given(box)
    assert not (box.root / "private/run-secrets.json").exists()


def test_a_machine_without_its_secrets_starts_nothing_and_its_log_says_why(make_box: MakeBox, tmp_path: Path) -> None:
    """Nobody may be there to read its sentinel."""
    place = FolderPlace(tmp_path / "store")
    box = make_box(store_url=place.url, linger=60)
    order_run(box, place)
    (box.root / "private").mkdir(mode=0o700)
    (box.root / "private/run-secrets.json").write_text(json.dumps({"SECRET_0": "a"}))
    assert box.call("boot").returncode == 1
    failed = readiness(box.root)["phases"][-1]
    assert (failed["phase"], failed["ok"]) == ("secrets", False)
    assert "SECRET_11 wasn't sent with the machine's supplies" in failed["error"]
    assert box.command()["state"] == "idle"
    box.begin("watch")
    wait_for(lambda: "the boot went wrong (secrets: AgentError: the secrets SECRET_0" in box.log())


def test_secrets_are_read_from_the_parameter_store(aws_box: Box, aws: Aws, parameters: Any) -> None:
    """Ten in a request; refusals and broken connections are tried again, and so is a parameter that appears late."""
    for name in NAMES[1:]:
        put(parameters, name)
    aws.gate.faults += [Fault("POST", status=400, code="AccessDeniedException"), Fault("POST", lost=True)]
    boot = aws_box.begin("boot")
    wait_for(lambda: len([each for each in aws.gate.asked if each[0] == "POST"]) >= 3)
    put(parameters, NAMES[0])
    assert boot.wait(timeout=60) == 0
    assert_given(aws_box)
    signed = [headers for method, _, headers in aws.gate.asked if method == "POST"]
    assert {headers["x-amz-target"] for headers in signed} == {"AmazonSSM.GetParameters"}
    assert all(f"/{REGION}/ssm/aws4_request" in headers["authorization"] for headers in signed)


def test_a_command_that_was_started_needs_no_secrets_at_the_next_boot(aws_box: Box, parameters: Any) -> None:
    """They may be gone by then."""
    for name in NAMES:
        put(parameters, name)
    assert aws_box.call("boot").returncode == 0
    aws_box.await_state("succeeded")
    parameters.delete_parameters(Names=[f"{PATH}/{name}" for name in NAMES[:10]])
    assert aws_box.call("boot").returncode == 0
    assert readiness(aws_box.root)["ok"]


@pytest.mark.parametrize(
    ("refuses", "said"),
    [
        ("", f"the parameter store has no {', '.join(NAMES[:10])} below {PATH}"),
        ("AccessDeniedException", "the parameter store answers 403"),
    ],
)
def test_secrets_that_can_t_be_read_in_time_are_reported(
    aws_box: Box, aws: Aws, parameters: Any, monkeypatch: pytest.MonkeyPatch, refuses: str, said: str
) -> None:
    """By name, with the store's answer, and without a value."""
    put(parameters, NAMES[11])
    monkeypatch.setenv(ENDPOINT_VARIABLE, aws.imds.url)
    monkeypatch.setattr(secrets, "MISSING_SECONDS", 0.0)
    monkeypatch.setattr(secrets, "ROLE_SECONDS", 0.0)
    aws.gate.refuses = refuses
    wanted = BootOrder(start_sha256="0" * 64, secrets=tuple(NAMES), secrets_url=url_of(aws))
    with pytest.raises(AgentError) as failed:
        secrets.read_secrets(Layout(aws_box.root), wanted)
    assert said in failed.value.why
    assert "value" not in str(failed.value)


@pytest.mark.parametrize("text", ["hunter2", '{"a": "hunter2"}'])
def test_a_value_that_kedge_did_not_write_is_refused_and_not_quoted(
    aws_box: Box, aws: Aws, parameters: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Somebody else has changed the parameter."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, aws.imds.url)
    parameters.put_parameter(Name=f"{PATH}/SECRET_0", Value=text, Type="SecureString")
    wanted = BootOrder(start_sha256="0" * 64, secrets=("SECRET_0",), secrets_url=url_of(aws))
    with pytest.raises(AgentError) as failed:
        secrets.read_secrets(Layout(aws_box.root), wanted)
    assert "hunter2" not in str(failed.value)
    assert failed.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("ssm://eu-west-3/kedge/runs/a/m1", "https://ssm.eu-west-3.amazonaws.com"),
        ("ssm://eu-west-3/kedge/runs/a/m1?endpoint=http://127.0.0.1:9", "http://127.0.0.1:9"),
    ],
)
def test_the_address_names_region_path_and_endpoint(url: str, endpoint: str) -> None:
    """The endpoint is the region's usual one, unless the laptop was told another."""
    assert secrets.parse_url(url) == secrets.Parameters("eu-west-3", "/kedge/runs/a/m1", endpoint)


@pytest.mark.parametrize("url", ["s3://bucket/key", "ssm://eu-west-3/", "ssm:///kedge"])
def test_another_address_is_refused(url: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match="ssm://REGION/PATH"):
        secrets.parse_url(url)
