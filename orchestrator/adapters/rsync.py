"""Data and results by rsync, over the same pinned and shared SSH connection as everything else."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from orchestrator.adapters.arrivals import Homecoming, disarm
from orchestrator.adapters.children import client_environment
from orchestrator.adapters.datatree import must_copy
from orchestrator.adapters.files import make_destination
from orchestrator.adapters.remote.session import DEFAULT_TIMEOUT
from orchestrator.adapters.room import require_room
from orchestrator.adapters.rsync_run import Limits, run_rsync
from orchestrator.core.decoding import clip
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.job import DataMount
from orchestrator.core.machine import Machine, SshAddress
from orchestrator.core.ports import Connector, Progress
from orchestrator.core.report import ResultFile
from orchestrator.core.tree import OF_REPOSITORIES, Arrival

_STALL_SECONDS = 60
_PARTIAL = ".kedge-partial"
_VANISHED = 24
# rsync(1), "EXIT VALUES": socket, stream and timeout errors; 255 is the SSH client's own.
_CONNECTION_CODES = frozenset({10, 12, 30, 35, 255})


def _in_any_case(name: str) -> str:
    """Write a name as rsync's pattern."""
    return "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in name)


# No link is brought home, whatever the machine sends: `Homecoming` makes those that stay inside. What would make a
# repository of a folder comes under another name (core/tree.py, home_path): its folders pass, its files don't.
_HOME = (
    "--no-links",
    *(
        f"--filter={rule}"
        for name in OF_REPOSITORIES
        for rule in (f"+ {_in_any_case(name)}/", f"- {_in_any_case(name)}")
    ),
    # Whatever modes the machine sends, the laptop's user can look into what came, and remove it.
    "--chmod=u+rwX",
)
# One file, by its path: a folder that has taken its place meanwhile isn't entered.
_ALONE = ("--no-links", "--no-recursive", "--no-dirs", "--chmod=u+rwX")
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
        self,
        machine: Machine,
        folder: str,
        destination: str,
        progress: Progress,
        *,
        files: Sequence[ResultFile] = (),
        within: timedelta = DEFAULT_TIMEOUT,
    ) -> Arrival:
        """Copy a folder, absolute or below the machine's root, into a folder of the laptop's.

        Args:
            machine: the sender.
            folder: on the machine.
            destination: on the laptop.
            progress: called now and then.
            files: what the machine says lies there; links that it doesn't name don't come.
            within: how long it may take, since a machine may send a byte now and then for ever.

        Raises:
            UnreachableError: the connection broke, or it took too long; a repeated call goes on from there.
            KedgeError: there is no such folder, rsync is missing on one side, or the disk has no room.
        """
        home = Path(destination)
        make_destination(home)
        require_room(home, files)
        source = posixpath.join(machine.root, folder)
        limits = Limits.from_now(within, home)
        homecoming = Homecoming(home, files)
        try:
            self._copy(machine, [*_HOME, "--", f"{_HOST}:{source}/", f"{destination}/"], progress, limits)
            for path, place in homecoming.to_copy():
                self._copy(machine, [*_ALONE, "--", f"{_HOST}:{source}/{path}", str(place)], _quietly, limits)
        except BaseException:
            # What has come by now stays.
            disarm(home)
            raise
        return homecoming.finish()

    def _make_folder(self, machine: Machine, folder: str) -> None:
        done = self._connector.connect(_address(machine)).run(["mkdir", "-p", "--", folder])
        if done.exit_code != 0:
            raise KedgeError(f"the machine can't make {folder}", why=_last_line(done.stderr))

    def _copy(
        self, machine: Machine, arguments: Sequence[str], progress: Progress, limits: Limits | None = None
    ) -> None:
        address = _address(machine)
        # Opened first: an error in it is told in our words, and rsync finds a socket to share.
        self._connector.connect(address)
        shell = _remote_shell(self._connector.ssh_argv(address, "-T", "-o", "ControlMaster=no"))
        own = ["--rsh", shell, "--rsync-path", self._remote_program]
        argv = [self._program, *_OPTIONS, *own, *arguments]
        exit_code, said = run_rsync(argv, client_environment(self._environ, address), progress, limits)
        if exit_code not in {0, _VANISHED}:
            raise _explain(exit_code, said)


def _quietly(_done: int, _total: int) -> None:
    """Leave out the progress of what is copied in an instant."""


# rsync wants a host's name where the SSH client has its HostName option; a name has no colons as IPv6 does.
_HOST = "machine"


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
