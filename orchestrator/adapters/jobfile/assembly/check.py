"""Expands the variables in a job's `check`, which runs on this computer."""

from __future__ import annotations

from functools import partial

import msgspec

from orchestrator.adapters.jobfile.problems import KeyPath
from orchestrator.adapters.jobfile.source_map import SourceMap
from orchestrator.adapters.jobfile.values.paths import expand_variables, variables_in
from orchestrator.core.job import Job
from orchestrator.core.values.printable import require_printable


def expand_checks(job: Job, source_map: SourceMap) -> Job:
    """Return a job whose checks have the values of the job's own variables, each within its word.

    Raises:
        BadRequestError: one uses a variable that isn't written in the file or a flag, or whose value can't be shown.
    """
    checks = (
        _expand(job, words, source_map, source_map.item(("check",), index)) for index, words in enumerate(job.checks)
    )
    return msgspec.structs.replace(job, checks=tuple(checks))


def _expand(job: Job, words: tuple[str, ...], source_map: SourceMap, key: KeyPath) -> tuple[str, ...]:
    envs = dict(job.envs)
    for name in (name for word in words for name in variables_in(word)):
        if name in job.from_shell:
            raise source_map.refusal(
                key,
                f"${name} can't be used here",
                why="its value comes from the shell and is kept secret, but the command is recorded and shown",
                fix=f"write its value under `envs`, or give it with --env {name}=value",
            )
        if name not in envs:
            raise source_map.refusal(
                key,
                f"${name} is not one of the job's `envs`",
                why="no shell expands it",
                fix=f"write {name} under `envs`, or its value here",
            )
    expanded = tuple(expand_variables(word, envs) for word in words)
    for word in expanded:
        source_map.at(key, partial(require_printable, word))
    return expanded
