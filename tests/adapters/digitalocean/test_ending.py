"""A droplet's end script, run here with the real curl against the box's API. Its sleep command is a stub."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.providers.digitalocean.self_deletion import (
    METADATA_NAME,
    SCOPES,
    SelfDelete,
    read_self_delete,
    render_end_script,
    secret_files,
)
from orchestrator.core.errors import BadRequestError
from tests.adapters.digitalocean import crowded
from tests.cloudbox.digitalocean.box import DigitalOceanBox

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="namespaces and another user need root on Linux"
)
PAGE = Path(__file__).parents[3] / "docs" / "digitalocean.md"
SIZE = "gpu-h100x1-80gb"
TOKEN_NAME = "KEDGE_DIGITALOCEAN_DELETE_TOKEN"
# The script pauses for a minute only after an accepted deletion. A real machine is gone by then.
SLEEP = 'echo "$1" >>{log}\nif [ "$1" = 60 ]; then kill -KILL "$PPID"; fi'


class Metadata(BaseHTTPRequestHandler):
    """A metadata service that returns the droplet's id after some failures."""

    def do_GET(self) -> None:
        state: dict[str, Any] = self.server.state  # type: ignore[attr-defined]
        if self.path != "/metadata/v1/id" or state["fails"]:
            state["fails"] -= 1
            return self.send_error(503)
        content = str(state["id"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        return None

    def log_message(self, *_arguments: object) -> None:
        pass


@dataclass
class Doomed:
    """A droplet of the box that runs its end script here.

    Attributes:
        facts: the droplet's `id`, and how often the metadata service `fails` before it returns the id.
    """

    do: DigitalOceanBox
    folder: Path
    facts: dict[str, Any]
    metadata: str

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def ending(self, token: str) -> SelfDelete:
        environ = {TOKEN_NAME: token, METADATA_NAME: self.metadata}
        return read_self_delete(environ, endpoint=self.do.endpoint, token_name=TOKEN_NAME, ca_file=str(self.do.ca_file))

    def end(self, token: str, *, volumes: tuple[str, ...] = ()) -> bool:
        """Run the script to its end, and tell whether the machine ended with it."""
        ending = self.ending(token)
        for name, text in secret_files(ending, state=str(self.state)).items():
            (self.state / name).write_text(text)
        script = self.folder / "end.sh"
        script.write_text(render_end_script(ending, volumes, state=str(self.state), user="nobody-here"))
        assert not token or token not in script.read_text()
        done = subprocess.run(
            ["sh", str(script)],
            env={"PATH": f"{self.folder / 'programs'}:/usr/bin:/bin"},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert not token or token.encode() not in done.stdout + done.stderr
        return done.returncode != 0

    @property
    def pauses(self) -> list[str]:
        log = self.folder / "sleep.log"
        return log.read_text().split() if log.exists() else []

    @property
    def arguments(self) -> str:
        """Return all arguments of curl, as a process list would show them."""
        return (self.folder / "curl.log").read_text()


@pytest.fixture
def doomed(do_api: DigitalOceanBox, tmp_path: Path) -> Iterator[Doomed]:
    droplets = [
        do_api.client().droplets.create(
            {"name": name, "region": "tor1", "size": SIZE, "image": "gpu-amd-base", "tags": ["kedge"]}
        )["droplet"]["id"]
        for name in ("other", "mine")
    ]
    for program, script in {
        "sleep": SLEEP.format(log=tmp_path / "sleep.log"),
        "systemctl": "exit 1",
        "curl": f'echo "$*" >>{tmp_path}/curl.log\nexec /usr/bin/curl "$@"',
    }.items():
        path = tmp_path / "programs" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    (tmp_path / "state").mkdir()
    facts: dict[str, Any] = {"id": droplets[1], "fails": 0}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    server.state = facts  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    do_api.calls.reset()
    yield Doomed(do_api, tmp_path, facts, f"http://127.0.0.1:{server.server_address[1]}")
    server.shutdown()
    server.server_close()
    thread.join()


def names(do: DigitalOceanBox) -> list[str]:
    return [droplet.name for droplet in do.droplets()]


def test_a_droplet_deletes_itself_and_nothing_else(doomed: Doomed) -> None:
    """Its token has no further scopes, and is in no argument of a process."""
    token = doomed.do.make_token(*SCOPES)
    assert doomed.end(token)
    assert names(doomed.do) == ["other"]
    assert token not in doomed.arguments
    assert doomed.pauses == ["60"]


@pytest.mark.parametrize("fault", ["status 500", "status 503 after", "status 429", "dropped", "dropped after", "new"])
def test_a_deletion_that_is_not_confirmed_is_repeated(doomed: Doomed, fault: str) -> None:
    """After an error, a broken connection, or an answer that the droplet is unknown."""
    path, after = "/v2/droplets/{droplet_id}", fault.endswith("after")
    if fault.startswith("status"):
        doomed.do.faults.fail_next("DELETE", path, status=int(fault.split()[1]), after_effect=after, times=2)
    elif fault == "new":
        doomed.do.faults.fail_next("DELETE", path, status=404, times=6)
    else:
        doomed.do.faults.drop_next("DELETE", path, after_effect=after, times=2)
    doomed.end(doomed.do.make_token(*SCOPES))
    assert names(doomed.do) == ["other"]
    assert doomed.pauses[0] == "10"


def test_a_query_to_a_failing_metadata_service_is_repeated(doomed: Doomed) -> None:
    """A droplet that does not know its id deletes nothing."""
    doomed.facts["fails"] = 3
    assert doomed.end(doomed.do.make_token(*SCOPES))
    assert names(doomed.do) == ["other"]
    assert doomed.pauses == ["10", "10", "10", "60"]


def test_without_a_token_the_machine_is_left_to_power_off(doomed: Doomed) -> None:
    """At once, and without any request."""
    assert not doomed.end("")
    assert names(doomed.do) == ["other", "mine"]
    assert (doomed.pauses, len(doomed.do.calls)) == ([], 0)


def test_a_token_that_is_always_refused_is_given_up(doomed: Doomed) -> None:
    """After five minutes the machine powers off, so that at least it computes nothing."""
    assert not doomed.end("dop_v1_revoked")
    assert names(doomed.do) == ["other", "mine"]
    assert doomed.pauses == ["10"] * 30


def test_without_curl_the_machine_is_left_to_power_off(doomed: Doomed) -> None:
    """A user's own image may lack curl."""
    ending = doomed.ending("dop_v1_x")
    (doomed.state / "api.curl").write_text("header")
    script = render_end_script(ending, state=str(doomed.state))
    done = subprocess.run(
        ["/bin/sh", "-c", script], env={"PATH": "/nowhere"}, capture_output=True, check=False, timeout=20
    )
    assert done.returncode == 0


@pytest.mark.parametrize("may", [True, False], ids=["with-its-scopes", "without"])
def test_volumes_that_end_with_the_run_are_deleted_if_the_token_may(doomed: Doomed, *, may: bool) -> None:
    """Otherwise the droplet is still deleted, because it costs most."""
    client = doomed.do.client()
    order = {"name": "scratch", "region": "tor1", "size_gigabytes": 10}
    volume = client.volumes.create(order)["volume"]["id"]
    client.volume_actions.post_by_id(volume, {"type": "attach", "droplet_id": doomed.facts["id"], "region": "tor1"})
    kinds = ("block_storage", "block_storage_snapshot", "image", "reserved_ip") if may else ()
    token = doomed.do.make_token(*SCOPES, *(f"{kind}:{deed}" for kind in kinds for deed in ("read", "delete")))
    doomed.end(token, volumes=(volume,))
    assert names(doomed.do) == ["other"]
    left = [each["id"] for each in client.volumes.list()["volumes"]]
    assert left == ([] if may else [volume])


def test_the_delete_token_needs_every_documented_scope(doomed: Doomed) -> None:
    """Deleting requires the scope to read, which requires others. With exactly these a droplet deletes itself.

    fact: do-scopes-require-read
    """
    for left_out in SCOPES[:1] + SCOPES[2:]:
        with pytest.raises(ValueError, match=left_out):
            doomed.do.make_token(*(scope for scope in SCOPES if scope != left_out))
    (row,) = (line for line in PAGE.read_text().splitlines() if line.startswith("| scopes |"))
    assert re.findall(r"`(\w+:\w+)`", row) == list(SCOPES)


def test_a_plan_says_what_the_delete_token_can_do(doomed: Doomed) -> None:
    """It can delete other droplets, and the job can read it. The droplet still ends by itself."""
    (line,) = doomed.ending("dop_v1_x").caveats
    assert TOKEN_NAME in line
    assert all(words in line for words in ("every droplet of its team", "through `sudo: true`", "docs/digitalocean.md"))
    assert "from a team that has nothing but training" in line
    assert "make a team of its own for training" in PAGE.read_text()
    assert "dop_v1_x" not in line


def test_the_plan_says_in_one_line_what_happens_without_a_token(doomed: Doomed) -> None:
    """The line also has the advice to set one. With a token the agent can end the machine."""
    with_token, without = doomed.ending("dop_v1_x"), doomed.ending("")
    assert without.command == ()
    assert with_token.command[-2:] == ("/opt/kedge/boot/ask.sh", "end")
    (line,) = without.caveats
    assert TOKEN_NAME in line
    assert "reap" in line
    assert "dop_v1_x" not in repr(with_token)


def test_an_invalid_token_is_refused(doomed: Doomed) -> None:
    """It could add lines to the file of curl's options."""
    with pytest.raises(BadRequestError, match=TOKEN_NAME):
        doomed.ending('x"\nurl = "https://elsewhere')


@needs_root
def test_a_job_that_holds_every_port_does_not_prevent_the_deletion(tmp_path: Path) -> None:
    """Any user can bind all ephemeral ports. Otherwise root could then reach neither the metadata nor the API."""
    (tmp_path / "api.curl").write_text("silent\n")
    url = "http://127.0.0.1:8080"
    (tmp_path / "systemctl").symlink_to("/bin/false")
    ending = SelfDelete(endpoint=url, token="t", token_name=TOKEN_NAME, metadata=url)
    (tmp_path / "end.sh").write_text(render_end_script(ending, state=str(tmp_path), user=crowded.JOB))
    namespaces = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
    said = subprocess.run(
        [*namespaces, sys.executable, "-m", crowded.__name__, str(tmp_path / "end.sh"), "8080"],
        cwd=Path(__file__).parents[3],
        env={"PATH": f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.stdout.splitlines()[0] == "DELETE /v2/droplets/4711", said
