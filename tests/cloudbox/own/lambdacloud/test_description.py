"""The box against Lambda's own description of its API, in both directions; and the box as a program."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.cloudbox.lambdacloud.gate import FILE, ROUTES, load_description
from tests.cloudbox.lambdacloud.orders import PUBLIC_KEY, code_of, order
from tests.cloudbox.lambdacloud.rates import LAUNCH
from tests.cloudbox.nspawn.order import REPOSITORY
from tests.cloudbox.rest.call import Answer, parse_call
from tests.cloudbox.rest.client import Client


def test_the_box_answers_what_is_described_and_nothing_else() -> None:
    """Every operation of the trimmed description has a route, and every route an operation."""
    described = {
        (method.upper(), path)
        for path, operations in json.loads(FILE.read_text())["paths"].items()
        for method in operations
    }
    assert {(route.method, route.template) for route in ROUTES} == described


def test_an_answer_that_is_not_lambdas_is_noticed() -> None:
    """An instance without its status, or a refusal with a code that isn't the path's."""
    description = load_description()
    call = parse_call("GET", "/api/v1/instances/1", {}, b"", "https://box")
    assert "status" in (description.complaint_about_answer(call, Answer(body={"data": {"id": "1"}})) or "")
    refused = {"error": {"code": "global/object-does-not-exist", "message": "gone"}}
    assert description.complaint_about_answer(call, Answer(status=404, body=refused)) is None
    refused["error"]["code"] = "global/not-found"
    assert description.complaint_about_answer(call, Answer(status=404, body=refused))


def test_a_request_that_is_not_described_is_refused(lambda_api: LambdaBox) -> None:
    """With Lambda's code for it, and no mistake of the box."""
    client, invalid = lambda_api.client(), (400, "global/invalid-parameters")
    assert code_of(client.call(*LAUNCH, {"region_name": "us-east-1"})) == invalid
    assert code_of(client.call(*LAUNCH, [order()])) == invalid
    assert code_of(client.call(*LAUNCH)) == invalid
    assert code_of(client.call("POST", "/api/v1/instance-operations/terminate", {"instance_ids": "1"})) == invalid
    assert not lambda_api.broken


def test_the_box_runs_as_a_program_and_takes_orders(tmp_path: Path) -> None:
    """Clients use it by the variables that it prints; it ends with its standard input, and leaves nothing."""
    argv = [sys.executable, "-m", "tests.cloudbox", "--lambda", "--no-machines", "--folder", str(tmp_path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, cwd=REPOSITORY, **pipes) as box:
        assert box.stdin
        assert box.stdout
        ready = json.loads(box.stdout.readline())
        control, environ = ready["control"], ready["environ"]
        quick = {"seconds_between_requests": 0, "key_seconds": 0, "unlisted_seconds": 0}
        _order(control, "settings", quick)
        headers = {"Authorization": f"Bearer {environ['LAMBDA_API_KEY']}", "User-Agent": "tests"}
        client = Client(environ["KEDGE_LAMBDA_ENDPOINT"], Path(environ["KEDGE_LAMBDA_CA"]), headers)
        client.call("POST", "/api/v1/ssh-keys", {"name": "laptop", "public_key": PUBLIC_KEY})
        fault = {
            "method": LAUNCH[0],
            "path": LAUNCH[1],
            "effect": "error",
            "after_effect": True,
            "code": "global/unknown",
        }
        _order(control, "faults", fault)
        assert code_of(client.call(*LAUNCH, order())) == (500, "global/unknown")
        (shown,) = client.call("GET", "/api/v1/instances").json["data"]
        assert [one["id"] for one in _order(control, "instances")] == [shown["id"]]
        _order(control, "advance", {"seconds": 3540})
        assert 4.2 < float(_order(control, "meter")["usd"]) < 4.5
        client.close()
        box.stdin.close()
        assert box.wait(30) == 0
    assert not list(tmp_path.iterdir())


def _order(control: str, what: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{control}/control/{what}", data=data, timeout=10) as answer:
        return json.load(answer)
