"""Finds the job file that a command means. Loads nothing heavy, because quick commands use it."""

from __future__ import annotations

from pathlib import Path

from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.jobfile.lookup.trust import refuse_foreign_job
from orchestrator.adapters.jobfile.problems import quoted, suggest
from orchestrator.core.errors import BadRequestError

JOB_FILE = "kedge.yaml"

_SUFFIXES = (".yaml", ".yml")


def find_job(cwd: Path, name: str | None) -> Path | None:
    """Return the named or the nearest job file; None if no name is given and there is none.

    Args:
        cwd: the current folder.
        name: None for the nearest `kedge.yaml`, in `cwd` or above; else a path to a file, or the name of a file
            beside that `kedge.yaml`, in `cwd`, or among the jobs that come with kedge.

    Raises:
        BadRequestError: there is no such file, a `kedge.yaml` isn't a file, or a file that wasn't named by its path
            may have been written by another user.
    """
    if name is None:
        nearest = nearest_job(cwd)
        _refuse_odd(cwd, nearest)
        if nearest is not None:
            refuse_foreign_job(nearest)
        return nearest
    path = Path(name)
    if path.suffix in _SUFFIXES or len(path.parts) > 1:
        return _given_file(cwd, name)
    found = named_jobs(cwd)
    if name not in found:
        raise BadRequestError(
            f"there is no job {quoted(name)}",
            why=f"looked for {name}.yaml in {', '.join(str(folder) for folder in _folders(cwd))}",
            fix=suggest(name, list(found)) or "give the path of a job file",
        )
    if found[name].parent != resource("infra", "jobs"):
        refuse_foreign_job(found[name])
    return found[name]


def nearest_job(cwd: Path) -> Path | None:
    """Return the nearest `kedge.yaml`, in the current folder or above."""
    folders = (cwd.absolute(), *cwd.absolute().parents)
    return next((folder / JOB_FILE for folder in folders if (folder / JOB_FILE).is_file()), None)


def _refuse_odd(cwd: Path, nearest: Path | None) -> None:
    """Refuse a `kedge.yaml` that isn't a file: passing over it could launch another job."""
    for folder in (cwd.absolute(), *cwd.absolute().parents):
        path = folder / JOB_FILE
        if path == nearest:
            return
        if path.is_symlink() or path.exists():
            raise BadRequestError(f"{path} is not a regular file", fix="remove it, or name a job file with --job")


def named_jobs(cwd: Path) -> dict[str, Path]:
    """List the files that `--job NAME` can mean here; of files with one name, the nearest wins."""
    found: dict[str, Path] = {}
    for folder in _folders(cwd):
        for path in sorted(folder.glob("[!.]*.y*ml")):
            if path.suffix in _SUFFIXES and path.is_file():
                found.setdefault(path.stem, path)
    return found


def _folders(cwd: Path) -> list[Path]:
    nearest = nearest_job(cwd)
    own = [nearest.parent] if nearest else []
    return list(dict.fromkeys([*own, cwd.absolute(), resource("infra", "jobs")]))


def _given_file(cwd: Path, name: str) -> Path:
    path = (cwd / Path(name)).absolute()
    if not path.is_file():
        raise BadRequestError(
            f"there is no job file {quoted(name)}",
            why=f"{path} is not a file",
            fix=suggest(path.stem, list(named_jobs(cwd))),
        )
    return path
