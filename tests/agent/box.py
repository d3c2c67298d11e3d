"""A machine for the agent: its own root, installed as on a real machine, with real processes."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive
from orchestrator.agent.base import state
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.record import to_json
from orchestrator.agent.base.wire import FAILED, STOPPED, SUCCEEDED
from orchestrator.agent.watch.report import make_report
from tests.agent.configs import USUAL, encode
from tests.support.preloaded.process import EVERYTHING_ANEW, PreloadedProcess, but_for_a_sample

RUN = "digits-1a2b"
LONG = 150.0
_VERB_SECONDS = 120.0
"""A boot installs packages."""


def wait_for(condition: Callable[[], Any], *, timeout: float = LONG) -> Any:
    """Wait until a condition is true, and return its value. After a slow check the pause is longer."""
    looked_at = time.monotonic()
    give_up = looked_at + timeout
    while not (found := condition()):
        now = time.monotonic()
        assert now < give_up, "waited in vain"
        time.sleep(max(0.03, 2 * (now - looked_at)))
        looked_at = time.monotonic()
    return found


class Box:
    """One machine."""

    def __init__(self, root: Path, *, env: Mapping[str, str] | None = None, **machine: Any) -> None:
        self.root = root
        self.mark = uuid.uuid4().hex
        self.sockets = Path(tempfile.mkdtemp(prefix="kg-", dir="/tmp"))
        self.env = {**os.environ, "KEDGE_TEST_MARK": self.mark, **(env or {})}
        self.env.pop("TERM", None)
        now = time.time()
        self.machine: dict[str, Any] = {
            "machine": f"{RUN}-m1",
            "run": RUN,
            "provider": "local",
            "root": str(root),
            "created": now,
            "deadline": now + 3600,
            "usd_per_hour": "1.99",
            "sockets": str(self.sockets),
            "sample_every": 0.2,
            "ship_every": 0.4,
            **machine,
        }
        self.prefix: list[str] = []
        """The command that starts each verb, such as a program that drops rights."""
        self._begun: list[subprocess.Popen[bytes]] = []
        self._takes_short_cuts = bool(but_for_a_sample(("kedge_agent",))) and EVERYTHING_ANEW not in os.environ
        """Whether this process does what programs of the agent would do; false in a sample of the tests."""
        self._install()

    def _install(self) -> None:
        self.root.mkdir(parents=True)
        (self.root / "machine.json").write_text(json.dumps(self.machine))
        if self._takes_short_cuts:
            copy_installed(self.root)
        else:
            install(self.root)
        # The boot of a cloud's machine does this, and the watch of a local one.
        Layout(self.root).prepare()

    @property
    def launcher(self) -> str:
        return str(self.root / "bin" / "kedge-agent")

    def call(self, *argv: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
        """Run a verb to its end, whatever its exit code."""
        environ = {**self.env, **env}
        if self._takes_short_cuts and not self.prefix:
            return self._fork([sys.executable, "-IS", self.launcher, *argv], stdin, environ)
        return subprocess.run(
            [*self.prefix, self.launcher, *argv],
            input=stdin,
            capture_output=True,
            env=environ,
            timeout=_VERB_SECONDS,
            check=False,
        )

    def _fork(self, argv: list[str], stdin: bytes, environ: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
        """Run what the launcher would execute, forked from a process that has imported the agent."""
        pipe, preload = subprocess.PIPE, ("tests.agent.preloaded",)
        with PreloadedProcess(argv, preload=preload, stdin=pipe, stdout=pipe, stderr=pipe, env=environ) as process:
            try:
                out, err = process.communicate(stdin, timeout=_VERB_SECONDS)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def ask(self, *argv: str, stdin: bytes = b"") -> Any:
        """Run a verb that must succeed, and parse what it prints."""
        done = self.call(*argv, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def begin(self, *argv: str) -> subprocess.Popen[bytes]:
        """Start a verb and leave it running."""
        process = subprocess.Popen(
            [self.launcher, *argv], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._begun.append(process)
        return process

    def config(self, command: str, **more: Any) -> dict[str, Any]:
        return {**USUAL, "run": RUN, "command": command, **more}

    def start(self, command: str, **more: Any) -> Any:
        """Start a run, and return its state."""
        return self.ask("start", stdin=encode(self.config(command, **more)))

    def report(self) -> dict[str, Any]:
        """The machine's report: tests poll it, so that it would be the program that starts most often."""
        if self._takes_short_cuts and not self.prefix:
            return dict(json.loads(json.dumps(to_json(make_report(Layout(self.root))))))
        return dict(self.ask("report"))

    def command(self) -> dict[str, Any]:
        """The command's state, as the machine reports it."""
        return dict(self.report()["command"])

    def await_state(self, *states: str, timeout: float = LONG) -> dict[str, Any]:
        """Wait for one of these states, and return the command's state.

        When the command is over, its runner has ended, too: it writes the last state a moment before.
        """
        found: dict[str, Any] = wait_for(
            lambda: command if (command := self.command())["state"] in states else None, timeout=timeout
        )
        if found["state"] in (SUCCEEDED, FAILED, STOPPED):
            wait_for(lambda: not state.load(Layout(self.root).task("")).runner_lives, timeout=timeout)
        return found

    def log(self) -> str:
        path = self.root / "results" / "run.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def note(self, name: str) -> dict[str, Any]:
        path = self.root / f"{name}.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def processes(self) -> list[int]:
        """List every process that this machine has started, whatever its parent is now."""
        wanted = f"KEDGE_TEST_MARK={self.mark}".encode()
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if wanted in _environ(path)]

    def send_code(self, stream: bytes, *, base: str = "", codec: str = "none") -> subprocess.CompletedProcess[bytes]:
        more = ["--base", base] if base else []
        return self.call("receive-code", "--codec", codec, *more, stdin=stream)

    def close(self) -> None:
        """End every process that this machine has started."""
        give_up = time.monotonic() + LONG
        while pids := self.processes():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            assert time.monotonic() < give_up, "a process did not die"
            time.sleep(0.02)
        for process in self._begun:
            process.communicate(timeout=LONG)
        shutil.rmtree(self.sockets, ignore_errors=True)


def install(root: Path) -> None:
    """Install the agent as a machine does."""
    with tarfile.open(fileobj=BytesIO(agent_archive())) as tar:
        tar.extractall(root / "agent", filter="data")
    subprocess.run(
        [sys.executable, "-m", "kedge_agent", "install", "--root", str(root)],
        env={**os.environ, "PYTHONPATH": str(root / "agent")},
        check=True,
        cwd="/",
    )


def copy_installed(root: Path) -> None:
    """Copy what `install` would write: compiling the agent for each test would be a third of a machine's cost."""
    source = _installed()
    shutil.copytree(source / "agent", root / "agent")
    (root / "bin").mkdir()
    for launcher in (source / "bin").iterdir():
        text = launcher.read_text()
        for there, here in ((f"--root={source}", f"--root={root}"), (str(source / "agent"), str(root / "agent"))):
            text = text.replace(repr(there), repr(here))
        copied = root / "bin" / launcher.name
        copied.write_text(text)
        copied.chmod(launcher.stat().st_mode)


@cache
def _installed() -> Path:
    """Install the agent once for all machines of this process."""
    root = Path(tempfile.mkdtemp(prefix="kedge-agent-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    install(root)
    return root


def _environ(path: Path) -> list[bytes]:
    try:
        if path.joinpath("stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z":
            return []
        return path.joinpath("environ").read_bytes().split(b"\0")
    except OSError:
        return []
