"""Whether a job's user may become root: where its file says so, or names sudo and is one of SkyPilot's."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.adapters.jobfile.written import Written

_SKYPILOT = frozenset({"name", "workdir", "num_nodes", "resources", "envs", "secrets", "file_mounts", "setup", "run"})
_NAMED = re.compile(r"(?<![\w.-])sudo(?![\w.-])")


def decide_sudo(written: Written, said: bool | None, scripts: Iterable[tuple[str, str]]) -> bool:
    """Say whether the job's user may become root.

    Args:
        written: the file.
        said: by its `sudo` key; None where it has none.
        scripts: `setup` and `run`, each after its key.

    Raises:
        BadRequestError: a script names sudo, and the file doesn't grant it.
    """
    # For SkyPilot's machines, where everybody has it.
    is_granted = set(written.document.value) <= _SKYPILOT if said is None else said
    naming = [key for key, script in scripts if names_sudo(script)]
    if naming and not is_granted:
        raise written.refusal(
            (naming[0],),
            "this names sudo, which the job's user doesn't have",
            why="whoever is root on the machine can change its deadline, and read what only root may",
            fix="add `sudo: true` to the job file, or do without: `pip` and `uv` need no root",
        )
    return bool(naming) if said is None else said


def names_sudo(script: str) -> bool:
    """Tell whether a script has the word, comments apart."""
    return any(_NAMED.search(line) for line in script.splitlines() if not line.lstrip().startswith("#"))
