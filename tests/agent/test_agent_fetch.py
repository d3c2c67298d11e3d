"""A bare machine fetches the agent from the bucket, and installs nothing but what it was told to."""

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
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive
from orchestrator.agent import bootstrap
from orchestrator.agent.s3.imds import ENDPOINT_VARIABLE
from tests.agent.aws import Aws
from tests.agent.boots import PREFIX, outcomes, readiness
from tests.agent.box import RUN
from tests.support.waiting import wait_until


def boot_archive() -> bytes:
    """Pack the modules that user-data carries."""
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
    """A machine that has only Python and what user-data brought."""

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
    """It needs only the named modules and its role; then it boots, and the timeline has the steps before."""
    (bare.root / "boot.jsonl").write_text('{"phase": "units", "began": 1, "ended": 2.5, "ok": true, "error": ""}\n')
    sha256 = put_agent(aws)
    done = bare.bootstrap(sha256)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bare.agent("boot").returncode == 0
    assert outcomes(bare.root) == [("units", True), ("agent", True), ("code", True), ("start", True)]
    assert len((bare.root / "boot.jsonl").read_text().splitlines()) == 4


def test_what_fetches_the_agent_fits_into_user_data() -> None:
    """User-data holds 16 KiB, of which the base64 of the packed modules is a part."""
    packed = base64.b64encode(boot_archive())
    print(f"{len(packed)} bytes")
    assert len(packed) <= 10.5 * 1024


def test_an_installed_agent_is_not_fetched_again(aws: Aws, bare: Bare) -> None:
    """A reboot needs no network for it."""
    sha256 = put_agent(aws)
    assert bare.bootstrap(sha256).returncode == 0
    shutil.rmtree(bare.root / "bin")
    aws.gate.refuses = "AccessDenied"
    assert bare.bootstrap(sha256).returncode == 0
    assert bare.agent("code-hash").returncode == 0


def test_another_agent_replaces_the_first(aws: Aws, bare: Bare) -> None:
    """No file of the old agent is left beside it."""
    assert bare.bootstrap(put_agent(aws)).returncode == 0
    (bare.root / "agent/kedge_agent/stale.py").touch()
    (bare.root / "agent/sha256").write_text("another")
    assert bare.bootstrap(put_agent(aws)).returncode == 0
    assert not (bare.root / "agent/kedge_agent/stale.py").exists()


def test_a_newer_agent_is_unpacked_where_the_job_can_not_write(aws: Aws, bare: Bare, tmp_path: Path) -> None:
    """An image may be made from a machine on which a job has put a link where root was going to unpack."""
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
def test_an_agent_with_another_hash_is_not_installed(aws: Aws, bare: Bare, content: bytes | None, told: str) -> None:
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
    """Root unpacks it, and does so safely although the archive has the right hash."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name))
    monkeypatch.setattr("tests.agent.test_agent_fetch.agent_archive", packed.getvalue)
    assert bare.bootstrap(put_agent(aws)).returncode == 1
    assert "the agent's archive holds" in readiness(bare.root)["phases"][0]["error"]


@pytest.mark.parametrize("missing", ["role", "rights"])
def test_a_role_that_arrives_late_is_waited_for(aws: Aws, bare: Bare, missing: str) -> None:
    """IAM needs a while, both to attach the instance profile and to make S3 accept the role."""
    sha256 = put_agent(aws)
    aws.imds.has_role = missing != "role"
    aws.gate.refuses = "InvalidAccessKeyId" if missing == "rights" else ""

    def arrive() -> None:
        wait_until(lambda: aws.imds.tokens)
        time.sleep(0.7)
        aws.imds.has_role = True
        aws.gate.refuses = ""

    late = threading.Thread(target=arrive)
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
    for folder in {path.parent for path in package.rglob("*.py")}:
        compiled = {path.name.split(".")[0] for path in (folder / "__pycache__").iterdir()}
        assert compiled == {path.stem for path in folder.glob("*.py")}
