"""The checks of a job's data that `launch` runs on this computer: which they are, and who has agreed to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from orchestrator.adapters.host.data_check import make_check, run_check
from orchestrator.adapters.jobfile.assembly.bundled import has_trainer
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.values.data_check import DataCheck


def list_checks(spec: LaunchSpec) -> tuple[DataCheck, ...]:
    """List the checks of a new run's modes, each once. Nothing is run."""
    checks = (check for job in (spec.job, *spec.later) for check in _checks_of(job))
    return tuple({check.runs: check for check in checks}.values())


def _checks_of(job: Job) -> Iterator[DataCheck]:
    workdir = None if job.workdir is None else Path(job.workdir)
    for command in job.checks:
        yield make_check(command, Path(job.path).parent, has_own_trainer=has_trainer(workdir))


def refuse_unseen(checks: Iterable[DataCheck]) -> None:
    """Refuse the checks that aren't kedge's own: nobody is asked, and so nobody has seen them.

    Raises:
        BadRequestError: there is one.
    """
    for check in checks:
        if not check.bundled:
            raise BadRequestError(
                f"with --yes a job file can't choose a command for your computer: {check.shown}",
                why="it would run as you, in "
                f"{check.folder}, and a job file may come with a stranger's repository; kedge's own checks run",
                fix="launch without --yes, which shows it before it asks, or allow this job's with --allow-check",
            )


def run_checks(app: App, checks: Sequence[DataCheck], show: Callable[[str], None]) -> None:
    """Run checks one after the other, all of them even if one fails: one launch shows all problems of the data.

    Raises:
        BadRequestError: one has failed, or several, which it names.
    """
    failures: list[BadRequestError] = []
    for check in checks:
        if len(checks) > 1:
            show(f"{check.shown}\n")
        try:
            run_check(check, app.settings.environ, show)
        except BadRequestError as err:
            failures.append(err)
    if failures:
        raise _refusal(failures, len(checks)) from failures[0]


def _refusal(failures: Sequence[BadRequestError], count: int) -> BadRequestError:
    first = failures[0]
    if len(failures) == 1:
        return BadRequestError(first.what, why=f"{first.why}; nothing was created", fix=first.fix)
    return BadRequestError(
        f"{len(failures)} of {count} checks of the data have failed",
        why="\n".join([*(f"{err.what}: {err.why}" for err in failures), "nothing was created"]),
        fix="correct what they say, and run the same command again",
    )
