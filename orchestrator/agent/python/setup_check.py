"""Detects that `setup` has replaced torch by one that doesn't see the GPUs, and which line did it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from ..base.files import write_atomically
from ..base.layout import Layout
from .job_env import JobEnvironment, discard_job_environment, find_torch, folder_of, read_job_environment
from .torch_env import Torch, probe, read_torch

# bash runs this before a script. It records only times and line numbers, because a line may have secrets. It preserves
# the previous command's status and last argument ($?, $_), and hides the trap from `set -x`. Loops don't fill the disk:
# a step is recorded when the line changes, at most a hundred times per line.
_TRACE = """unset BASH_ENV
kedge_trace() {
  if [[ $1 != "${kedge_line-}" ]]; then
    kedge_line=$1 kedge_times[$1]=$((${kedge_times[$1]:-0} + 1))
    ((kedge_times[$1] > 100)) || printf "%s %s\\n" "${EPOCHREALTIME:-0}" "$1" >>@FILE@ || :
  fi
  : "$2"
}
trap '{ kedge_trace "$LINENO" "$_"; } 2>/dev/null' DEBUG
"""
# The tolerance between a line's start and a file that it creates, whose times are from two clocks of one kernel.
_SLACK_SECONDS = 0.02


def trace(layout: Layout, env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which bash records the time of each line of a script, if GPUs need a torch."""
    file = _trace_file(layout)
    file.unlink(missing_ok=True)
    made = read_job_environment(layout)
    if made is None or not made.torches or "BASH_ENV" in env:
        return dict(env)
    script = layout.root / "trace.sh"
    write_atomically(script, _TRACE.replace("@FILE@", shlex.quote(str(file))).encode(errors="surrogateescape"))
    return {**env, "BASH_ENV": str(script)}


def find_damage(layout: Layout, made: JobEnvironment | None, setup: str) -> str:
    """Describe what `setup` did to torch, if torch sees fewer GPUs than before; empty otherwise.

    The environment is then removed, because a corrected `setup` would find the wrong torch again.
    """
    before = read_torch(layout)
    if before is None or made is None or not made.torches:
        return ""
    damage = _compare(layout, before, made, setup)
    if damage:
        discard_job_environment(layout)
    return damage


def _compare(layout: Layout, before: Torch, made: JobEnvironment, setup: str) -> str:
    now = probe(str(folder_of(layout) / "bin/python"), made=False)
    if now is not None and len(now.archs) >= len(before.archs):
        return ""
    package = find_torch(layout)
    is_another = package is None or package.version != made.torches.get("torch")
    number = find_line(_trace_file(layout), package.installed) if package and is_another else 0
    lines = setup.splitlines()
    where = f"line {number} of setup ({lines[number - 1].strip()})" if 0 < number <= len(lines) else "setup"
    what = f"torch {package.version if package else 'that is gone'}"
    sees = f"sees {len(now.archs)} of {len(before.archs)} GPUs" if now else "can't be imported"
    done = f"put {what} in the place of {before.torch}" if is_another else f"has damaged {what}"
    return f"{where} {done}: it {sees}"


def find_line(file: Path, instant: float) -> int:
    """Return the number of the line that was running at a time; 0 if unknown."""
    try:
        pairs = [line.split() for line in file.read_text(errors="replace").splitlines()]
    except OSError:
        return 0
    # Some locales have a decimal comma.
    steps = [(float(pair[0].replace(",", ".")), int(pair[1])) for pair in pairs if len(pair) == 2]
    return next((number for began, number in reversed(steps) if 0 < began <= instant + _SLACK_SECONDS), 0)


def _trace_file(layout: Layout) -> Path:
    return layout.root / "setup.trace"
