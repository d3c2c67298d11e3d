"""Renders the files that are the same for each scheduler: the job's scripts, and `start.sh`, which runs one of them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from orchestrator.adapters.export.model import SCRIPT, ExportFile, prefix_of
from orchestrator.adapters.host.templates import render
from orchestrator.core.job import Job
from orchestrator.core.task import Task

_AGENT = Path(__file__).resolve().parents[2] / "agent"
_MAIN = "import sys\n\nfrom kedge_agent.main import main\n\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def render_contract(
    job: Job, gpus: int, *, stops_before_seconds: int = 0, needs_secrets: bool = True
) -> Iterator[ExportFile]:
    """Yield the scripts of all tasks.

    Args:
        job: the job in one mode.
        gpus: how many the machine has.
        stops_before_seconds: how long before the deadline the command must have ended; 0 if the scheduler sends
            SIGTERM in time by itself.
        needs_secrets: the command isn't started without the job's secrets.
    """
    if job.setup.strip():
        yield ExportFile(path="setup.sh", content=_text(job.setup), mode=SCRIPT)
    for task in job.tasks:
        prefix = prefix_of(task)
        yield ExportFile(path=f"{prefix}run.sh", content=_text(task.run), mode=SCRIPT)
        if task.later_run.strip():
            yield ExportFile(path=f"{prefix}resume.sh", content=_text(task.later_run), mode=SCRIPT)
        start = render(
            "export/start.sh.j2",
            **_values(job, task, gpus),
            stops_before=stops_before_seconds,
            secrets_are="required" if needs_secrets else "optional",
        )
        yield ExportFile(path=f"{prefix}start.sh", content=_text(start), mode=SCRIPT)
    yield ExportFile(path="kedge-agent.zip", content=pack_agent())


def pack_agent() -> bytes:
    """Pack the agent as a program that `python3 FILE` runs; `start.sh` asks it for the newest complete checkpoint."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        for path in sorted(_AGENT.rglob("*.py")):
            member = zipfile.ZipInfo(f"kedge_agent/{path.relative_to(_AGENT).as_posix()}", _EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, path.read_bytes())
    return packed.getvalue()


def _values(job: Job, task: Task, gpus: int) -> dict[str, object]:
    supervisor = task.supervisor
    own = dict(task.envs)
    return {
        "task": task.name,
        "prefix": prefix_of(task),
        "restarts": supervisor.restarts,
        "restart_after": round(supervisor.restart_after.total_seconds()),
        "grace": round(supervisor.grace.total_seconds()),
        "secrets": list(job.from_shell),
        # A task's own win, as in agent/run/environment.py.
        "envs": [*((name, value) for name, value in job.envs if name not in own), *own.items()],
        "gpus": gpus if task.gpus is None else len(task.gpus),
        "cpus": task.cpus or 0,
        "python_path": job.bundled_trainer,
        "data": [mount.target for mount in job.data],
        "outputs": list(task.outputs),
        "checkpoints": task.checkpoints,
    }


def _text(text: str) -> bytes:
    return f"{text.rstrip()}\n".encode(errors="surrogateescape")
