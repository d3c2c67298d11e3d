"""Finds credentials in the folders that a job sends: the user's own, and kedge's keys."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.core.actions import SendCode, SendData, StageCode, StageData
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.plan import Plan
from orchestrator.core.values.credentials import PLACES


def refuse_state(job: Job, state: Path) -> None:
    """Refuse to send kedge's own folder, which holds the keys of all machines and copies of other runs.

    Code may be sent from a parent of that folder, because files that git ignores aren't sent.

    Raises:
        BadRequestError: data or code come from that folder, or data from a parent of it.
    """
    folders = [Path(folder) for mount in job.data if not mount.is_fetched for folder in (mount.source, *mount.follows)]
    for folder in (*folders, *([Path(job.workdir)] if job.workdir else [])):
        if folder.is_relative_to(state) or (folder in folders and state.is_relative_to(folder)):
            raise BadRequestError(
                f"{folder} is not sent to a machine",
                why=f"kedge keeps the keys of all machines and its record of all runs in {state}",
                fix="name the folders that the job needs; results of runs are fetched with `kedge fetch`",
            )


def exposure_notes(plan: Plan, state: Path) -> tuple[str, ...]:
    """Note which of the user's credentials a plan sends to the machine, one line for each folder."""
    places = {place: (Path(os.path.realpath(Path(place).expanduser())), what) for place, what in PLACES.items()}
    notes = []
    for action in plan.actions:
        if isinstance(action, SendData | StageData):
            mount = action.mount
            if found := _exposed((mount.source, *mount.follows), places):
                notes.append(f"data {mount.target} is sent from {mount.source}: the machine is given {found}")
        elif isinstance(action, SendCode | StageCode):
            own = {"kedge's state folder": (state, "keys of all machines")}
            if found := _exposed((action.source,), places | own):
                notes.append(f"code is sent from {action.source}: unless git ignores it, the machine is given {found}")
    # Each of several machines is sent the same.
    return tuple(dict.fromkeys(notes))


def _exposed(sources: tuple[str, ...], places: dict[str, tuple[Path, str]]) -> str:
    """Name the places that are within the sources, or contain them."""
    return ", ".join(
        f"{what} ({place})"
        for place, (path, what) in places.items()
        if path.exists() and any(path.is_relative_to(source) or Path(source).is_relative_to(path) for source in sources)
    )
