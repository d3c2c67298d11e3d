"""Data and results by rsync, over the same pinned and shared SSH connection as everything else."""

from __future__ import annotations

import posixpath
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO

from orchestrator.adapters.arrivals import Homecoming
from orchestrator.adapters.children import client_environment
from orchestrator.adapters.datatree import must_copy
from orchestrator.adapters.files import make_destination
from orchestrator.adapters.remote.session import Collector
from orchestrator.core.decoding import ANSWER_BYTES, clip
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.job import DataMount
from orchestrator.core.machine import Machine, SshAddress
from orchestrator.core.ports import Connector, Progress
from orchestrator.core.report import ResultFile
from orchestrator.core.tree import Arrival

_STALL_SECONDS = 60
_PARTIAL = ".kedge-partial"
_PROGRESS = re.compile(rb"^\s*(\d[\d,.]{0,30})\s+(\d{1,3})%")
_READ_BYTES = 1 << 12
_LAST_WORDS_SECONDS = 2.0
_VANISHED = 24
# rsync(1), "EXIT VALUES": socket, stream and timeout errors; 255 is the SSH client's own.
_CONNECTION_CODES = frozenset({10, 12, 30, 35, 255})
# No link is brought home, whatever the machine sends: `Homecoming` makes those that stay inside. What would make a git
# repository of a folder comes under another name (core/tree.py, home_path).
_HOME = (
    *("--no-links", "--filter=+ [Hh][Ee][Aa][Dd]/", "--filter=- [Hh][Ee][Aa][Dd]"),
    *("--filter=+ .[Gg][Ii][Tt]/", "--filter=- .[Gg][Ii][Tt]"),
)
# What is unpacked belongs to whoever unpacks it, and no device is data.
_OPTIONS = (
    *("--archive", "--no-owner", "--no-group", "--no-devices", "--no-specials", "--protect-args"),
    # Neither setuid nor sticky: on the way home, that is the laptop's own rsync, whatever the machine sends.
    "--chmod=ug-s,-t",
    # Never under the file's own name, where half of it would pass for the whole.
    *("--partial", f"--partial-dir={_PARTIAL}"),
    *("--info=progress2", "--no-human-readable", f"--timeout={_STALL_SECONDS}"),
)


class RsyncMover:
    """Implements `core.ports.DataMover`: what is there already isn't sent again, and a cut copy goes on."""

    def __init__(
        self,
        connector: Connector,
        *,
        environ: Mapping[str, str] = MappingProxyType({}),
        program: str = "rsync",
        remote_program: str = "rsync",
    ) -> None:
        self._connector = connector
        self._environ = environ
        self._program = program
        self._remote_program = remote_program

    def send(self, mount: DataMount, machine: Machine, progress: Progress, *, delete: bool = False) -> None:
        """Bring `<root>/data/<target>` to the state of the mount's source, a file or a folder.

        Args:
            mount: what, and where to.
            machine: the receiver.
            progress: called now and then.
            delete: also remove what a source folder doesn't have.

        Raises:
            BadRequestError: there is no such source, the target leaves the data folder, or a link leaves the source for
                somewhere that the mount doesn't say.
            UnreachableError: the connection broke; a repeated call goes on from there.
            KedgeError: rsync is missing on one side, or can't do it.
        """
        source = Path(mount.source)
        if not source.exists():
            raise BadRequestError(f"there is no {source}", fix="correct `file_mounts` or `data` in the job file")
        target = posixpath.join(machine.root, "data", _checked(mount.target))
        folder = source.is_dir()
        copies = must_copy(source, mount.follows)
        self._make_folder(machine, target if folder else posixpath.dirname(target))
        # Only where it has just been looked which they are: what rsync finds unsafe then is what the plan has shown, or
        # leads back into the source by an absolute path, which would lead nowhere on the machine.
        copied = ["--copy-unsafe-links"] if copies else []
        options = [*copied, *(["--delete"] if delete and folder else [])]
        slash = "/" if folder else ""
        self._copy(machine, [*options, "--", f"{source}{slash}", f"{_HOST}:{target}{slash}"], progress)

    def fetch(
        self, machine: Machine, folder: str, destination: str, progress: Progress, *, files: Sequence[ResultFile] = ()
    ) -> Arrival:
        """Copy a folder, absolute or below the machine's root, into a folder of the laptop's.

        Args:
            machine: the sender.
            folder: on the machine.
            destination: on the laptop.
            progress: called now and then.
            files: what the machine says lies there; links that it doesn't name don't come.

        Raises:
            UnreachableError: the connection broke; a repeated call goes on from there.
            KedgeError: there is no such folder, or rsync is missing on one side.
        """
        make_destination(Path(destination))
        source = posixpath.join(machine.root, folder)
        self._copy(machine, [*_HOME, "--", f"{_HOST}:{source}/", f"{destination}/"], progress)
        homecoming = Homecoming(Path(destination), files)
        for path, place in homecoming.to_copy():
            self._copy(machine, ["--no-links", "--", f"{_HOST}:{source}/{path}", str(place)], _quietly)
        return homecoming.finish()

    def _make_folder(self, machine: Machine, folder: str) -> None:
        done = self._connector.connect(_address(machine)).run(["mkdir", "-p", "--", folder])
        if done.exit_code != 0:
            raise KedgeError(f"the machine can't make {folder}", why=_last_line(done.stderr))

    def _copy(self, machine: Machine, arguments: Sequence[str], progress: Progress) -> None:
        address = _address(machine)
        # Opened first: an error in it is told in our words, and rsync finds a socket to share.
        self._connector.connect(address)
        shell = _remote_shell(self._connector.ssh_argv(address, "-T", "-o", "ControlMaster=no"))
        own = ["--rsh", shell, "--rsync-path", self._remote_program]
        argv = [self._program, *_OPTIONS, *own, *arguments]
        exit_code, said = _run(argv, client_environment(self._environ, address), progress)
        if exit_code not in {0, _VANISHED}:
            raise _explain(exit_code, said)


def _quietly(_done: int, _total: int) -> None:
    """Leave out the progress of what is copied in an instant."""


# rsync wants a host's name where the SSH client has its HostName option; a name has no colons as IPv6 does.
_HOST = "machine"


def _run(argv: Sequence[str], environ: Mapping[str, str], progress: Progress) -> tuple[int, bytes]:
    """Run rsync to its end; what it complains of may be the machine's own words.

    Raises:
        NonsenseError: it complains without an end.
    """
    try:
        process = subprocess.Popen(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
    except FileNotFoundError as err:
        raise KedgeError(
            "rsync isn't installed here",
            fix="install it: `sudo apt-get install rsync`, or `brew install rsync`",
        ) from err
    with process:
        complaints = Collector(partial(_read, process.stderr), ANSWER_BYTES, process.terminate)
        try:
            for done, total in _parse_progress(process.stdout):
                progress(done, total)
            process.wait()
        except BaseException:
            process.terminate()
            raise
        finally:
            # Its SSH client may outlive it, where the machine holds that back: nobody waits for the pipe to end.
            complaints.join(_LAST_WORDS_SECONDS)
    return process.returncode, complaints.take()


def _read(output: IO[bytes] | None) -> bytes:
    # Closed meanwhile is ended.
    with suppress(ValueError):
        return (output.read(_READ_BYTES) if output else b"") or b""
    return b""


def _parse_progress(output: IO[bytes] | None) -> Iterator[tuple[int, int]]:
    """Yield bytes done and an estimate of all, which grows while rsync still finds files."""
    rest = b""
    while data := _read(output):
        *whole, rest = re.split(rb"[\r\n]", rest[-_READ_BYTES:] + data)
        for line in whole:
            if found := _PROGRESS.match(line):
                done, percent = int(re.sub(rb"\D", b"", found[1])), int(found[2])
                yield done, done * 100 // percent if percent else 0


def _explain(exit_code: int, said: bytes) -> KedgeError:
    text = said.decode(errors="replace")
    if exit_code == 127 or "command not found" in text or "remote command not found" in text:
        return KedgeError(
            "rsync isn't installed on the machine",
            why=_last_line(said),
            fix="choose an image that has it, or give the job `sudo: true`, and a setup that installs rsync",
        )
    if "unknown option" in text or "unrecognized option" in text:
        return KedgeError(
            "this rsync is too old", why=_last_line(said), fix="install rsync >= 3.1; on macOS, `brew install rsync`"
        )
    if exit_code in _CONNECTION_CODES:
        return UnreachableError(
            "the connection broke while data was copied",
            why=_last_line(said),
            fix="run the command again: it goes on from where it was",
        )
    return KedgeError(f"rsync failed with exit code {exit_code}", why=_first_line(said))


def _remote_shell(ssh_argv: Sequence[str]) -> str:
    # rsync appends the host itself. Its quotes (rsync(1), --rsh): a doubled quote inside quotes is one.
    return " ".join("'" + word.replace("'", "''") + "'" for word in ssh_argv[:-1])


def _checked(target: str) -> str:
    path = posixpath.normpath(target)
    if not target or posixpath.isabs(path) or path in {".", ".."} or path.startswith("../"):
        raise BadRequestError(
            f"{target!r} can't be a target for data",
            why="data lies in a folder of its own on the machine",
            fix="name a path relative to the working folder, without `..`",
        )
    return path


def _address(machine: Machine) -> SshAddress:
    if machine.address is None:
        raise UnreachableError(
            f"{machine.id} has no address yet", why=f"it is {machine.state}", fix="try again when it is ready"
        )
    return machine.address


def _first_line(said: bytes) -> str:
    return clip(next(iter(said.decode(errors="replace").strip().splitlines()), "it said nothing"))


def _last_line(said: bytes) -> str:
    return clip(next(reversed(said.decode(errors="replace").strip().splitlines()), "it said nothing"))
