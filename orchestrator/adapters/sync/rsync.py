"""Copies data and results with rsync, over the same pinned and shared SSH connection as all commands."""

from __future__ import annotations

import contextlib
import os
import posixpath
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from orchestrator.adapters.host.child_environment import client_environment
from orchestrator.adapters.host.files import make_destination
from orchestrator.adapters.incoming.arrivals import ResultsPlacer, find_differences, rename_repository_files
from orchestrator.adapters.incoming.disk_room import require_room
from orchestrator.adapters.ssh.session import DEFAULT_TIMEOUT
from orchestrator.adapters.sync.data_tree import must_copy
from orchestrator.adapters.sync.rsync_run import Limits, run_rsync
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.job import DataMount
from orchestrator.core.machine import Machine, SshAddress
from orchestrator.core.ports import Connector
from orchestrator.core.protocol.decoding import clip
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import OF_REPOSITORIES, Arrival
from orchestrator.core.transfers import Progress

_STALL_SECONDS = 60
_PARTIAL = ".kedge-partial"
_VANISHED = 24
# The record loses its content first: what a killed removal leaves isn't the whole data (agent/data/fetched.py).
_MAKE_ROOM = 'if [ -e "$2" ]; then : >"$2" && rm -rf -- "$1" && rm -f -- "$2" || exit; fi; mkdir -p -- "$3"'
# rsync(1), "EXIT VALUES": socket, stream and timeout errors; 255 is the SSH client's own.
_CONNECTION_CODES = frozenset({10, 12, 30, 35, 255})


def _in_any_case(name: str) -> str:
    """Return an rsync pattern that matches a name in upper and lower case."""
    return "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in name)


# rsync fetches no links, whatever the machine sends: `ResultsPlacer` creates those that stay inside. Files that would
# make a folder a repository are fetched under other names (core/protocol/tree.py, home_path): rsync takes only the
# folders.
_HOME = (
    "--no-links",
    *(
        f"--filter={rule}"
        for name in OF_REPOSITORIES
        for rule in (f"+ {_in_any_case(name)}/", f"- {_in_any_case(name)}")
    ),
    # Whatever modes the machine sends, the laptop's user can read and remove the results.
    "--chmod=u+rwX",
)
# One file, by its path: if a folder has taken its place meanwhile, it isn't entered.
_ALONE = ("--no-links", "--no-recursive", "--no-dirs", "--chmod=u+rwX")
# Files belong to the receiving user, and devices aren't data.
_OPTIONS = (
    *("--archive", "--no-owner", "--no-group", "--no-devices", "--no-specials", "--protect-args"),
    # Neither setuid nor sticky. For fetches, the laptop's own rsync enforces this, whatever the machine sends.
    "--chmod=ug-s,-t",
    # Not under the file's own name, where a partial file would look complete.
    *("--partial", f"--partial-dir={_PARTIAL}"),
    *("--info=progress2", "--no-human-readable", f"--timeout={_STALL_SECONDS}"),
)


class RsyncMover:
    """Implements `core.ports.DataMover`: unchanged files aren't sent again, and interrupted copies resume."""

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
            mount: the source and the target.
            machine: the receiver.
            progress: called from time to time.
            delete: also remove what a source folder doesn't have.

        Raises:
            BadRequestError: the source doesn't exist, the target leaves the data folder, or a link leads out of the
                source to a place that the mount doesn't allow.
            UnreachableError: the connection broke; a repeated call resumes.
            KedgeError: rsync is missing on one side, or fails.
        """
        source = Path(mount.source)
        if not source.exists():
            raise BadRequestError(f"there is no {source}", fix="correct `file_mounts` or `data` in the job file")
        target = posixpath.join(machine.root, "data", _checked(mount.target))
        folder = source.is_dir()
        copies = must_copy(source, mount.follows)
        self._make_room(machine, target, target if folder else posixpath.dirname(target))
        # This option is safe only right after `must_copy` has checked the links. rsync then copies the targets of links
        # that the plan has shown, and of absolute links into the source, whose path doesn't exist on the machine.
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
        only: bool = False,
        within: timedelta = DEFAULT_TIMEOUT,
    ) -> Arrival:
        """Copy a folder from the machine to the laptop.

        Args:
            machine: the sender.
            folder: on the machine, absolute or relative to its root.
            destination: on the laptop.
            progress: called from time to time.
            files: the machine's list of the folder; links that aren't listed aren't copied.
            only: copy only what is in this list.
            within: the time limit, because a machine could send a few bytes forever.

        Raises:
            UnreachableError: the connection broke, or the copy took too long; a repeated call resumes.
            KedgeError: the folder doesn't exist, rsync is missing on one side, or the disk is full.
        """
        home = Path(destination)
        make_destination(home)
        require_room(home, files)
        source = posixpath.join(machine.root, folder)
        limits = Limits.from_now(within, home)
        homecoming = ResultsPlacer(home, files)
        try:
            with _listed(files if only else None) as chosen:
                self._copy(machine, [*_HOME, *chosen, "--", f"{_HOST}:{source}/", f"{destination}/"], progress, limits)
            for path, place in homecoming.to_copy():
                self._copy(machine, [*_ALONE, "--", f"{_HOST}:{source}/{path}", str(place)], _quietly, limits)
        except BaseException:
            # What was copied so far stays.
            rename_repository_files(home)
            raise
        arrival = homecoming.finish()
        came = (file for file in files if file.path not in arrival.left_out)
        return replace(arrival, different=find_differences(came, home))

    def _make_room(self, machine: Machine, target: str, folder: str) -> None:
        """Create a folder for data; data of an address that an earlier job fetched to a volume is removed."""
        record = posixpath.join(posixpath.dirname(target), f".{posixpath.basename(target)}.fetched.json")
        argv = ["sh", "-c", _MAKE_ROOM, "sh", target, record, folder]
        done = self._connector.connect(_address(machine)).run(argv)
        if done.exit_code != 0:
            raise KedgeError(f"the machine can't create {folder}", why=_last_line(done.stderr))

    def _copy(
        self, machine: Machine, arguments: Sequence[str], progress: Progress, limits: Limits | None = None
    ) -> None:
        address = _address(machine)
        # Connect first: its errors are kedge's own, and rsync then shares the connection.
        self._connector.connect(address)
        shell = _remote_shell(self._connector.ssh_argv(address, "-T", "-o", "ControlMaster=no"))
        own = ["--rsh", shell, "--rsync-path", self._remote_program]
        argv = [self._program, *_OPTIONS, *own, *arguments]
        exit_code, said = run_rsync(argv, client_environment(self._environ, address), progress, limits)
        if exit_code not in {0, _VANISHED}:
            raise _explain(exit_code, said)


@contextlib.contextmanager
def _listed(files: Sequence[ResultFile] | None) -> Iterator[tuple[str, ...]]:
    """Return the options with which rsync copies these files only; none for all files."""
    if files is None:
        yield ()
        return
    with tempfile.NamedTemporaryFile(prefix="kedge-files-") as wanted:
        for file in files:
            if not file.link and not file.left_out:
                wanted.write(os.fsencode(file.path) + b"\0")
        wanted.flush()
        # A running command may have removed one since.
        yield "--ignore-missing-args", "--from0", f"--files-from={wanted.name}"


def _quietly(_done: int, _total: int) -> None:
    """Ignore the progress of a copy that takes an instant."""


# rsync needs a host name, though the SSH client takes its HostName option; unlike IPv6, a name has no colons.
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
            fix="run the command again: it continues where it stopped",
        )
    return KedgeError(f"rsync failed with exit code {exit_code}", why=_first_line(said))


def _remote_shell(ssh_argv: Sequence[str]) -> str:
    # rsync appends the host itself. In its quotes (rsync(1), --rsh), a doubled quote stands for one.
    return " ".join("'" + word.replace("'", "''") + "'" for word in ssh_argv[:-1])


def _checked(target: str) -> str:
    path = posixpath.normpath(target)
    if not target or posixpath.isabs(path) or path in {".", ".."} or path.startswith("../"):
        raise BadRequestError(
            f"{target!r} can't be a target for data",
            why="data has its own folder on the machine",
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
