"""Decides whether a job's user may become root: if its file says so, or is a SkyPilot file that uses sudo."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.adapters.jobfile.problems import KeyPath
from orchestrator.adapters.jobfile.source_map import SourceMap

_SKYPILOT = frozenset({"name", "workdir", "num_nodes", "resources", "envs", "secrets", "file_mounts", "setup", "run"})
_NAMED = re.compile(r"(?<![\w.-])sudo(?![\w.-])")


def decide_sudo(source_map: SourceMap, said: bool | None, scripts: Iterable[tuple[KeyPath, str]]) -> bool:
    """Decide whether the job's user may become root.

    Args:
        source_map: the file, and where its keys are.
        said: the value of its `sudo` key; None without one.
        scripts: the scripts with their keys, such as those of `setup` and `run`.

    Raises:
        BadRequestError: a script uses sudo, and the file doesn't grant it.
    """
    # A file with SkyPilot's keys alone was written for SkyPilot, whose machines always have sudo.
    is_granted = set(source_map.document.value) <= _SKYPILOT if said is None else said
    naming = [key for key, script in scripts if names_sudo(script)]
    if naming and not is_granted:
        raise source_map.refusal(
            naming[0],
            "this uses sudo, which the job's user doesn't have",
            why="root can change the machine's deadline, and read its secrets",
            fix="add `sudo: true` to the job file, or avoid it: `pip` and `uv` don't need root",
        )
    return bool(naming) if said is None else said


def names_sudo(script: str) -> bool:
    """Tell whether a script contains the word sudo outside comments."""
    return any(_NAMED.search(line) for line in script.splitlines() if not line.lstrip().startswith("#"))
