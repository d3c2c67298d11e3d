"""`kedge doctor` on this computer: each problem, with the command that solves it."""

from __future__ import annotations

from pathlib import Path

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers import Context, open_probes
from orchestrator.core.checkup import Check, Verdict, run_probes
from orchestrator.core.job import Resources

NEEDED = {"ssh", "ssh-keygen", "rsync", "git", "tmux"}
"""sshd is needed too, but is looked for where systems have it, whatever PATH says."""


def check_up(folder: Path, path: str) -> dict[str, Check]:
    """Run the checks with another PATH."""
    context = Context(
        state_dir=folder, runtime_dir=folder, clock=SystemClock(), key_file=folder / "key", environ={"PATH": path}
    )
    return {check.name: check for check in run_probes(open_probes("local", context, Resources()))}


def test_programs_that_are_missing_are_named_with_their_package(tmp_path: Path) -> None:
    """Programs that kedge can do without are warnings."""
    tmp_path.chmod(0o700)
    checks = check_up(tmp_path, str(tmp_path))
    assert {name for name, check in checks.items() if check.verdict is Verdict.FAILED} == NEEDED
    assert {name for name, check in checks.items() if check.verdict is Verdict.WARNING} == {"screen", "zstd"}
    assert "install openssh-client" in checks["ssh"].fix
    assert all("install" in checks[name].fix for name in (*NEEDED, "screen", "zstd"))


def test_folders_that_are_open_to_others_fail_with_the_command_that_closes_them(tmp_path: Path) -> None:
    """They hold keys."""
    tmp_path.chmod(0o755)
    checks = check_up(tmp_path, "/usr/bin:/bin")
    for name in ("state folder", "runtime folder"):
        assert checks[name].verdict is Verdict.FAILED
        assert checks[name].fix == f"chmod 700 '{tmp_path}'"
