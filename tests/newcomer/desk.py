"""A newcomer's computer that has booted, with its own systemd, and what its user types."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.cloudbox.nspawn import rootfs
from tests.cloudbox.nspawn.order import REPOSITORY
from tests.support.waiting import wait_until

USER = rootfs.DESK.user


@dataclass
class Desk:
    """The computer: `type` is its user at the keyboard, `root` inspects it."""

    keeper: subprocess.Popen[bytes]
    environment: Mapping[str, str] = field(default_factory=dict)

    def type(self, command: str, *, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a line as the user, in their home and a new session; standard output and error are merged."""
        settings = [f"--setenv={name}={value}" for name, value in self.environment.items()]
        unit = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--uid={USER}", "--property=PAMName=login"]
        shell = ["/bin/bash", "-c", f"cd && exec 2>&1\n{command}"]
        return self._enter([*unit, *settings, *shell], timeout=timeout)

    def root(self, command: str) -> str:
        """Run a line as root, which must succeed."""
        done = self._enter(["/bin/bash", "-c", f"exec 2>&1\n{command}"], timeout=120)
        assert done.returncode == 0, f"{command}: status {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def reboot(self) -> None:
        """Reboot it, and wait until all units of the boot have started."""
        before = self._init()
        self._enter(["systemctl", "reboot"])
        wait_until(lambda: (after := self._find_init()) is not None and after != before)
        self.await_boot()

    def await_boot(self) -> None:
        """Wait until the computer has booted."""
        wait_until(lambda: self._find_init() is not None)
        # Units that can't work in a container fail: the state is "degraded" then.
        wait_until(lambda: self._enter(["systemctl", "is-system-running"]).stdout.strip() in {"running", "degraded"})

    def _enter(self, argv: Sequence[str], *, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        spaces = ["nsenter", f"--target={self._init()}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        clean = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
        return subprocess.run(
            [*spaces, *clean, *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def _init(self) -> int:
        found = self._find_init()
        assert found, "the computer isn't on"
        return found

    def _find_init(self) -> int | None:
        """Return the process of the computer's systemd."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.keeper.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    # The process has executed the computer's own init by now: its mounts are all in place.
                    if process.name() == "systemd":
                        return process.pid
        return None


@contextlib.contextmanager
def switched_on(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Desk]:
    """Boot a newcomer's computer, and delete it afterwards.

    Args:
        folder: A folder of its own, to be made.
        arguments: More arguments of systemd-nspawn.
        environment: Variables of the user's shells.
    """
    folder.mkdir()
    keeper = [sys.executable, "-m", "tests.newcomer.keeper", str(folder), *arguments]
    with (
        (folder.parent / "console.log").open("wb") as console,
        subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", *keeper],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=console,
            start_new_session=True,
        ) as process,
    ):
        desk = Desk(keeper=process, environment=environment or {})
        try:
            desk.await_boot()
            yield desk
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(60)
            shutil.rmtree(folder)
