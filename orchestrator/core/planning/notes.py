"""Writes a plan's notes: what the user should know before confirming, one line each."""

from __future__ import annotations

from orchestrator.core.actions import Action, CreateMachine
from orchestrator.core.job import AtEnd, Job, LaunchSpec
from orchestrator.core.machine import MachineState
from orchestrator.core.plan import AfterStart, Observed
from orchestrator.core.protocol.wire import LEFT_BEHIND_BYTES, LEFT_BEHIND_OVER_SSH_BYTES
from orchestrator.core.values.credentials import own_credentials
from orchestrator.core.values.units import format_bytes

_MOST_SHOWN = 200
_SUDO = (
    "`sudo`: the job's user can become root on a cloud's machine: read what only root may, such as a token that "
    "deletes machines, change the agent, and stop the timer that ends the machine at its deadline"
)

_NO_TORCH = (
    "the bundled trainer needs torch, which neither this Python has nor kedge's own: let `setup` install it, or "
    "activate an environment with torch"
)


def launch_notes(
    spec: LaunchSpec, observed: Observed, after_start: AfterStart, actions: tuple[Action, ...]
) -> tuple[str, ...]:
    """Note what happens to results, machines and volumes, and what limits the cost."""
    job = spec.job
    notes = [
        f"machine {machine.id} is ended first: its creation is unclear, or it has lost its init"
        for machine in observed.machines
        if machine.state is MachineState.UNKNOWN
    ]
    kept = [volume.name for volume in job.resources.volumes if volume.at_end is AtEnd.KEEP]
    if kept:
        notes.append(f"kept, and still billed, when the run is over: {', '.join(kept)} (`at_end` changes that)")
    if job.budget_usd is None:
        notes.append("no budget is set (--budget refuses what may cost more)")
    notes.extend(_credential_notes(job))
    notes.extend(_next_offer_notes(job, actions))
    notes.extend(_left_behind_notes(job, observed))
    if job.run and observed.keeps_results:
        notes.append("checkpoints and results are copied off the machine; the run outlives it")
    elif job.run:
        notes.append("results end with the machine: fetch them before the deadline")
    if job.run:
        notes.append(_recovery_note(spec, after_start))
    if spec.python and job.bundled_trainer and not spec.python.has_torch:
        notes.append(_NO_TORCH)
    notes.extend(resume_notes(job))
    if job.sudo:
        notes.append(_SUDO)
    notes.extend(_fetch_notes(job))
    notes.extend(_local_disk_notes(job, observed))
    notes.extend(_bill_notes(spec, observed, after_start))
    notes.extend(observed.caveats)
    return tuple(notes)


def resume_notes(job: Job) -> tuple[str, ...]:
    """Note the command that is run if there is something to resume from, if it is a different one."""
    if not job.later_run:
        return ()
    return (f"if there is a checkpoint to resume from, this runs instead: {shown(job.later_run)}",)


def change_notes(before: Job, after: Job) -> tuple[str, ...]:
    """Note which command is run from now on, if it has changed."""
    notes = []
    if after.run != before.run:
        notes.append(f"the command is changed from {shown(before.run)} to {shown(after.run)}")
    if after.later_run != before.later_run and not after.later_run:
        notes.append(f"`resume` is given up: {shown(before.later_run)} isn't run any more")
    return tuple(notes)


def shown(script: str) -> str:
    """Return a script, cut to the length of a line."""
    line = "; ".join(part.strip() for part in script.strip().splitlines())
    return f"`{line[:_MOST_SHOWN]}{'...' if len(line) > _MOST_SHOWN else ''}`"


def teardown_notes(observed: Observed) -> tuple[str, ...]:
    """Note what can't be fetched."""
    if observed.machines and observed.report is None:
        kept = (
            "the copy that was made of its results is fetched"
            if observed.keeps_results
            else "nothing can be fetched from it"
        )
        return (f"the machine doesn't answer: {kept}",)
    return ()


def _left_behind_notes(job: Job, observed: Observed) -> list[str]:
    """Note what happens to files outside of the outputs; the bundled trainer writes none."""
    if not job.run or job.outputs or job.bundled_trainer:
        return []
    usual = LEFT_BEHIND_BYTES if observed.keeps_results else LEFT_BEHIND_OVER_SSH_BYTES
    limit = usual if job.left_behind_bytes is None else job.left_behind_bytes
    written = "no `outputs`: files that the script writes elsewhere than in $KEDGE_OUTPUT_DIR"
    if not limit:
        return [f"{written} are lost (`left_behind: 0`)"]
    return [f"{written} are kept under left-behind/, newest first, up to {format_bytes(limit)}"]


def _credential_notes(job: Job) -> list[str]:
    names = ", ".join(own_credentials(job.from_shell))
    if not names:
        return []
    return [f"the machine is given {names}: whoever wrote its code, or breaks into it, can use your account with these"]


def _recovery_note(spec: LaunchSpec, after_start: AfterStart) -> str:
    if not spec.recover:
        return "nothing relaunches a lost machine by itself: `kedge resume` does, from the last checkpoint"
    by = (
        "while this command runs"
        if after_start.follow
        else "by `kedge recover`, which `kedge recover --install` repeats"
    )
    return f"a lost machine is replaced {by}; one deadline holds for all machines together"


def _bill_notes(spec: LaunchSpec, observed: Observed, after_start: AfterStart) -> list[str]:
    """Note what ends the bill after the command, if neither this command nor the machine does."""
    if after_start.follow or observed.ends_by_itself or spec.keep or not spec.job.run:
        return []
    alone = "nobody follows the command, and its machine can't end itself"
    if not observed.keeps_results:
        return [f"{alone}: it bills until its deadline, unless `kedge teardown` fetches the results and ends it before"]
    return [f"{alone}: once the results are uploaded, `kedge reap` of this computer ends it, by hand or by its timer"]


def _next_offer_notes(job: Job, actions: tuple[Action, ...]) -> list[str]:
    if not any(isinstance(action, CreateMachine) and len(action.offers) > 1 for action in actions):
        return []
    cost = "comes on top of the worst case" if job.budget_usd is None else "counts in the budget"
    return [
        "a machine that can't be started, or fails its burn-in, is ended, and another offer is taken without asking; "
        f"what it has cost {cost}"
    ]


def _local_disk_notes(job: Job, observed: Observed) -> list[str]:
    offer = observed.offers[0] if observed.offers else None
    if offer is None or not job.data or offer.local_disk_gib <= offer.disk_gib:
        return []
    disk = f"the {offer.instance_type}'s own disk of {offer.local_disk_gib:,} GiB"
    return [f"data goes to {disk}, which is lost with the machine; results and checkpoints stay on the root disk"]


def _fetch_notes(job: Job) -> list[str]:
    # A query string may be a signature.
    fetched = [(mount.source.partition("?")[0], mount.target) for mount in job.data if mount.is_fetched]
    if not job.run:
        return [f"{source} is not fetched: the job has no command" for source, _ in fetched]
    return [f"the machine fetches {source} to {target} before the command starts" for source, target in fetched]
