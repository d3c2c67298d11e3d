"""A machine that sets itself up: agent, code and command from the bucket, and a sentinel that tells how it went."""

from __future__ import annotations

import base64
import getpass
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.agent_archive import agent_archive
from orchestrator.agent import bootstrap
from orchestrator.agent.imds import ENDPOINT_VARIABLE
from tests.agent.aws import Aws
from tests.agent.box import RUN, Box
from tests.agent.places import Place
from tests.agent.test_receive import FIRST, pack, tree_of

MakeBox = Callable[..., Box]
PREFIX = f"runs/{RUN}"


def order(box: Box, **fields: Any) -> None:
    (box.root / "boot.json").write_text(json.dumps(fields))


def readiness(root: Path) -> dict[str, Any]:
    return dict(json.loads((root / "ready").read_text()))


def outcomes(root: Path) -> list[tuple[str, bool]]:
    return [(phase["phase"], phase["ok"]) for phase in readiness(root)["phases"]]


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put_code(store: Place) -> str:
    """Stage the code, and return the SHA-256 of its archive."""
    archive = gzip.compress(pack("hash0001", FIRST))
    store.write(f"code/{sha256_of(archive)}.tar.gz", archive)
    return sha256_of(archive)


def put_start(store: Place, config: dict[str, Any]) -> str:
    raw = json.dumps(config).encode()
    store.write("start.json", raw)
    return sha256_of(raw)


def test_code_is_pulled_from_the_store(make_box: MakeBox, store: Place) -> None:
    """It is in place as if it had been sent; the second time nothing is fetched, and no SHA-256 is needed."""
    sha256 = put_code(store)
    box = make_box(store_url=store.url, env=store.env)
    assert box.call("pull-code", "hash0001").returncode == 2
    assert box.call("pull-code", "--sha256", sha256, "hash0001").returncode == 0
    assert tree_of(box) == FIRST
    assert box.call("code-hash").stdout == b"hash0001\n"
    store.write(f"code/{sha256}.tar.gz", b"not fetched again")
    assert box.call("pull-code", "hash0001").returncode == 0


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, b"the store has no code hash0002"),
        (b"", b"was cut"),
        (gzip.compress(pack("hash0002", FIRST))[:-200], b"was cut"),
        (gzip.compress(pack("hash0003", FIRST)), b"hash0002 was asked for"),
    ],
    ids=["missing", "empty", "cut", "another"],
)
def test_code_that_is_not_what_was_asked_for_changes_nothing(
    make_box: MakeBox, store: Place, content: bytes | None, told: bytes
) -> None:
    """The old tree stays, and the reason is told."""
    box = make_box(store_url=store.url, env=store.env)
    box.call("pull-code", "--sha256", put_code(store), "hash0001")
    sha256 = sha256_of(content or b"")
    if content is not None:
        store.write(f"code/{sha256}.tar.gz", content)
    done = box.call("pull-code", "--sha256", sha256, "hash0002")
    assert (done.returncode, told in done.stderr, b"Traceback" in done.stderr) == (1, True, False), done.stderr
    assert box.call("code-hash").stdout == b"hash0001\n"
    assert tree_of(box) == FIRST


def test_a_machine_without_a_store_pulls_nothing(box: Box) -> None:
    """Exit code 2, as for everything that can't be carried out; so for what is no hash."""
    assert box.call("pull-code", "hash0001").returncode == 2
    assert box.call("pull-code", "../../hash").returncode == 2


def test_a_machine_boots_pulls_and_starts(make_box: MakeBox, store: Place) -> None:
    """The phases are told as they end; the command runs in its code, with what was stored of the run."""
    box = make_box(store_url=store.url, env=store.env)
    start = put_start(store, box.config("cat a.py; echo ran"))
    order(box, code="hash0001", code_sha256=put_code(store), start_sha256=start)
    assert box.call("boot").returncode == 0
    assert outcomes(box.root) == [("agent", True), ("code", True), ("start", True)]
    lines = [json.loads(line) for line in (box.root / "boot.jsonl").read_text().splitlines()]
    assert lines == readiness(box.root)["phases"]
    assert all(line["began"] <= line["ended"] and line["error"] == "" for line in lines)
    box.await_state("succeeded")
    assert " print(1)\n" in box.log()


def test_a_command_that_has_ended_is_not_started_by_the_next_boot(make_box: MakeBox, store: Place) -> None:
    """`boot` may run as often as the machine boots."""
    box = make_box(store_url=store.url, env=store.env)
    order(box, start_sha256=put_start(store, box.config('echo x >> "$KEDGE_OUTPUT_DIR/runs"')))
    assert box.call("boot").returncode == 0
    box.await_state("succeeded")
    assert box.call("boot").returncode == 0
    assert box.command()["state"] == "succeeded"
    assert (box.root / "results/output/runs").read_text() == "x\n"
    assert outcomes(box.root) == [("agent", True), ("code", True), ("start", True)]


def test_code_that_was_sent_since_is_not_replaced_by_the_next_boot(make_box: MakeBox, store: Place) -> None:
    """What the launch ordered is for a machine that has no code yet: `sync-code` has the last word."""
    box = make_box(store_url=store.url, env=store.env)
    order(box, code="hash0001", code_sha256=put_code(store))
    assert box.call("boot").returncode == 0
    newer = {**FIRST, "b.py": b"newer\n"}
    assert box.send_code(pack("hash0002", newer)).returncode == 0
    assert box.call("boot").returncode == 0
    assert box.call("code-hash").stdout == b"hash0002\n"
    assert tree_of(box) == newer
    assert outcomes(box.root) == [("agent", True), ("code", True), ("start", True)]


@pytest.mark.parametrize(
    ("fields", "failed", "told"),
    [
        ({"code": "hash0009", "code_sha256": "0" * 64, "start_sha256": "0" * 64}, "code", "no code hash0009"),
        ({"start_sha256": "0" * 64}, "start", "start.json"),
        ({"code": 3}, "agent", "wrong type"),
        ({"code": "../x"}, "agent", "not as expected"),
        ({"code": "hash0009", "code_sha256": "../x"}, "agent", "not as expected"),
        ({"start_sha256": "../x"}, "agent", "not as expected"),
    ],
)
def test_a_boot_that_fails_says_so_in_the_sentinel(
    make_box: MakeBox, store: Place, fields: dict[str, Any], failed: str, told: str
) -> None:
    """What comes after the phase that failed isn't tried."""
    box = make_box(store_url=store.url, env=store.env)
    order(box, **fields)
    assert box.call("boot").returncode == 1
    ready = readiness(box.root)
    assert (ready["ok"], ready["phases"][-1]["phase"], ready["phases"][-1]["ok"]) == (False, failed, False)
    assert told in ready["phases"][-1]["error"]
    assert "\n" not in ready["phases"][-1]["error"]


def test_a_machine_without_orders_is_ready_and_waits(box: Box) -> None:
    """The laptop tells it what to do."""
    assert box.call("boot").returncode == 0
    assert readiness(box.root)["ok"]
    assert box.command()["state"] == "idle"


def boot_archive() -> bytes:
    """Pack what user-data carries."""
    packed = io.BytesIO()
    folder = Path(bootstrap.__file__).parent
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name in bootstrap.MODULES:
            content = (folder / f"{name}.py").read_bytes()
            member = tarfile.TarInfo(f"kedge_agent/{name}.py")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


class Bare:
    """A machine that has nothing but Python and what user-data brought."""

    def __init__(self, root: Path, aws: Aws) -> None:
        self.root = root
        self._env = {"PATH": os.defpath, ENDPOINT_VARIABLE: aws.imds.url}
        (root / "boot").mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(boot_archive())) as tar:
            tar.extractall(root / "boot", filter="data")
        now = time.time()
        times = {"created": now, "deadline": now + 3600, "usd_per_hour": "1"}
        names = {"machine": f"{RUN}-m1", "run": RUN, "provider": "aws", "root": str(root), "store_url": aws.store_url}
        (root / "machine.json").write_text(json.dumps({**names, **times}))

    def bootstrap(self, sha256: str) -> subprocess.CompletedProcess[bytes]:
        argv = [sys.executable, "-EsS", "-m", "kedge_agent.bootstrap", str(self.root), sha256, getpass.getuser()]
        return subprocess.run(argv, cwd=self.root / "boot", env=self._env, capture_output=True, timeout=60, check=False)

    def agent(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        launcher = [str(self.root / "bin/kedge-agent"), *argv]
        return subprocess.run(launcher, env=self._env, capture_output=True, timeout=60, check=False)


@pytest.fixture
def bare(tmp_path: Path, aws: Aws) -> Bare:
    return Bare(tmp_path / "opt" / "kedge", aws)


def put_agent(aws: Aws, content: bytes | None = None) -> str:
    archive = agent_archive()
    sha256 = hashlib.sha256(archive).hexdigest()
    aws.write(f"{PREFIX}/agent/{sha256}.tar.gz", archive if content is None else content)
    return sha256


def test_a_bare_machine_fetches_its_agent(aws: Aws, bare: Bare) -> None:
    """From the named modules alone, with its role; then it boots, and what came before is in the timeline."""
    (bare.root / "boot.jsonl").write_text('{"phase": "units", "began": 1, "ended": 2.5, "ok": true, "error": ""}\n')
    sha256 = put_agent(aws)
    done = bare.bootstrap(sha256)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bare.agent("boot").returncode == 0
    assert outcomes(bare.root) == [("units", True), ("agent", True), ("code", True), ("start", True)]
    assert len((bare.root / "boot.jsonl").read_text().splitlines()) == 4


def test_what_fetches_the_agent_fits_into_user_data() -> None:
    """Base64 of the packed modules; user-data has 16 KiB, and much else to say."""
    packed = base64.b64encode(boot_archive())
    print(f"{len(packed)} bytes")
    assert len(packed) <= 10 * 1024


def test_an_agent_that_is_there_is_not_fetched_again(aws: Aws, bare: Bare) -> None:
    """A reboot needs no network for it."""
    sha256 = put_agent(aws)
    assert bare.bootstrap(sha256).returncode == 0
    shutil.rmtree(bare.root / "bin")
    aws.gate.refuses = "AccessDenied"
    assert bare.bootstrap(sha256).returncode == 0
    assert bare.agent("code-hash").returncode == 0


def test_another_agent_takes_the_place_of_the_first(aws: Aws, bare: Bare) -> None:
    """Nothing of the old one is left beside it."""
    assert bare.bootstrap(put_agent(aws)).returncode == 0
    (bare.root / "agent/kedge_agent/stale.py").touch()
    (bare.root / "agent/sha256").write_text("another")
    assert bare.bootstrap(put_agent(aws)).returncode == 0
    assert not (bare.root / "agent/kedge_agent/stale.py").exists()


def test_a_newer_agent_is_unpacked_where_the_job_has_nothing_to_say(aws: Aws, bare: Bare, tmp_path: Path) -> None:
    """An image may be made of a machine, with a link that its job has put where root was to unpack."""
    assert bare.bootstrap(put_agent(aws)).returncode == 0
    (bare.root / "agent/sha256").write_text("another")
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in (".agent", "agent.new", ".agent.new", ".install"):
        (bare.root / name).symlink_to(mine)
    assert bare.bootstrap(put_agent(aws)).returncode == 0
    assert list(mine.iterdir()) == []
    assert not (bare.root / "agent").is_symlink()


@pytest.mark.parametrize(("content", "told"), [(b"tampered", "isn't"), (None, "NoSuchKey")], ids=["wrong", "missing"])
def test_an_agent_that_is_not_what_was_asked_for_is_not_installed(
    aws: Aws, bare: Bare, content: bytes | None, told: str
) -> None:
    """The sentinel says so at once: nobody waits for a machine that can't come up."""
    sha256 = put_agent(aws, content) if content else "0" * 64
    assert bare.bootstrap(sha256).returncode == 1
    assert told in readiness(bare.root)["phases"][0]["error"]
    assert readiness(bare.root)["ok"] is False
    assert not (bare.root / "bin").exists()


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/kedge-escaped", "a/../../../escaped"])
def test_an_agents_archive_writes_nothing_outside_its_folder(
    aws: Aws, bare: Bare, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Although it is what was asked for: root unpacks it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name))
    monkeypatch.setattr("tests.agent.test_boot.agent_archive", packed.getvalue)
    assert bare.bootstrap(put_agent(aws)).returncode == 1
    assert "the agent's archive holds" in readiness(bare.root)["phases"][0]["error"]


@pytest.mark.parametrize("missing", ["role", "rights"])
def test_a_role_that_arrives_late_is_waited_for(aws: Aws, bare: Bare, missing: str) -> None:
    """IAM takes its time: for the instance profile to arrive, and for S3 to know the role."""
    sha256 = put_agent(aws)
    aws.imds.has_role = missing != "role"
    aws.gate.refuses = "InvalidAccessKeyId" if missing == "rights" else ""

    def arrive() -> None:
        aws.imds.has_role = True
        aws.gate.refuses = ""

    late = threading.Timer(0.7, arrive)
    late.start()
    done = bare.bootstrap(sha256)
    late.join()
    assert done.returncode == 0, done.stderr
    agent = json.loads((bare.root / "boot.jsonl").read_text())
    assert agent["ended"] - agent["began"] > 0.6


def test_the_installed_agent_is_compiled(bare: Bare, aws: Aws) -> None:
    """The launcher starts as fast where nothing can be written later."""
    assert bare.bootstrap(put_agent(aws)).returncode == 0
    package = bare.root / "agent" / "kedge_agent"
    compiled = {path.name.split(".")[0] for path in (package / "__pycache__").iterdir()}
    assert compiled == {path.stem for path in package.glob("*.py")}
