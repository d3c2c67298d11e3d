"""The probes of `kedge doctor` on this computer: what kedge needs to run, and for local machines."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.adapters.ssh.ssh_config import is_included
from orchestrator.core.checkup import Probe, ProbeResult, Verdict

if TYPE_CHECKING:
    from orchestrator.adapters.providers import Context
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine

_PROGRAMS = (
    ("ssh", "openssh-client", "reach machines"),
    ("ssh-keygen", "openssh-client", "make keys"),
    ("rsync", "rsync", "move data and results"),
    ("git", "git", "list the code to send"),
    ("sshd", "openssh-server", "run machines on this computer (the local provider)"),
    ("tmux", "tmux", "supervise commands on this computer"),
    ("screen", "screen", "supervise commands on this computer, another way"),
    ("zstd", "zstd", "unpack code quicker on this computer"),
)
_OPTIONAL = ("screen", "zstd")
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where sshd is; often not in an ordinary user's PATH."""


def make_probes(context: Context, resources: Resources) -> Sequence[Probe]:  # noqa: ARG001 - the same for each
    """List the probes: Python, the programs that kedge calls, its folders and the SSH configuration."""
    path = f"{context.environ.get('PATH', '')}:{_SBIN}"
    programs = (
        Probe(name=name, look=partial(_program, name, package, purpose, path)) for name, package, purpose in _PROGRAMS
    )
    return (
        Probe(name="Python", look=_python),
        *programs,
        Probe(name="state folder", look=partial(_folder, context.state_dir)),
        Probe(name="runtime folder", look=partial(_folder, context.runtime_dir)),
        Probe(name="ssh configuration", look=partial(_include, context)),
    )


def look_at_guard(context: Context, machine: Machine) -> ProbeResult:
    """Check that the machine's init is alive, which ends the machine at its deadline."""
    if MachineFolder(context.state_dir.resolve() / "machines" / machine.id).init() is None:
        return Verdict.FAILED, "the machine's init is dead: nothing ends it", f"`kedge teardown {machine.run_id}`"
    return Verdict.OK, "its init ends it", ""


def _python() -> ProbeResult:
    verdict = Verdict.OK if sys.version_info >= (3, 11) else Verdict.FAILED
    return verdict, platform.python_version(), "install Python 3.11 or newer"


def _program(name: str, package: str, purpose: str, path: str) -> ProbeResult:
    found = shutil.which(name, path=path)
    install = f"brew install {package}" if sys.platform == "darwin" else f"sudo apt-get install {package}"
    if found is None:
        if name in _OPTIONAL:
            return Verdict.WARNING, f"missing; with it kedge could {purpose}", install
        return Verdict.FAILED, f"missing; it is needed to {purpose}", install
    return Verdict.OK, found, ""


def _folder(path: Path) -> ProbeResult:
    if path.stat().st_mode & 0o077:
        return Verdict.FAILED, f"{path}, open to others", f"chmod 700 '{path}'"
    return Verdict.OK, str(path), ""


def _include(context: Context) -> ProbeResult:
    """Check whether plain `ssh RUN` works: a convenience, so that its lack is no failure."""
    included = is_included(context.ssh_config, context.state_dir / "ssh_config")
    found = "plain `ssh RUN` works" if included else "`kedge ssh-config --install` makes plain `ssh RUN` work, too"
    return Verdict.OK, found, ""
