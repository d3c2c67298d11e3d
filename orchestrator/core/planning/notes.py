"""Writes a plan's notes: what the user should know before confirming, one line each."""

from __future__ import annotations

from orchestrator.core.actions import Action, CreateMachine
from orchestrator.core.job import AtEnd, DataMount, Job, LaunchSpec
from orchestrator.core.machine import MachineState, newest_gang
from orchestrator.core.modes import mode_key
from orchestrator.core.plan import AfterStart, Observed, goes_on_without, machines_left
from orchestrator.core.planning.tasks import task_notes
from orchestrator.core.protocol.choice import literal_folder
from orchestrator.core.protocol.wire import LEFT_BEHIND_BYTES, LEFT_BEHIND_OVER_SSH_BYTES
from orchestrator.core.task import Task
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
    notes.extend(_code_notes(job))
    notes.extend(_credential_notes(job))
    notes.extend(_together_notes(spec, observed, actions))
    notes.extend(_next_offer_notes(job, actions))
    notes.extend(_left_behind_notes(job, observed))
    notes.extend(_output_notes(job, observed))
    if job.tasks and observed.keeps_results:
        notes.append("checkpoints and results are copied off the machine; the run outlives it")
    elif job.tasks:
        notes.append("results end with the machine: fetch them before the deadline")
    if job.tasks:
        notes.append(_recovery_note(spec, after_start))
    if spec.python and job.bundled_trainer and not spec.python.has_torch:
        notes.append(_NO_TORCH)
    notes.extend(resume_notes(job))
    notes.extend(task_notes(spec, observed, actions))
    if job.sudo:
        notes.append(_SUDO)
    notes.extend(_fetch_notes(job))
    notes.extend(_local_disk_notes(job, observed))
    notes.extend(_bill_notes(spec, observed, after_start))
    notes.extend(observed.caveats)
    return tuple(notes)


def mode_notes(before: LaunchSpec, after: LaunchSpec) -> tuple[str, ...]:
    """Note what changes with a run's mode or its variables; values of variables are never shown."""
    old, new = dict(before.job.envs), dict(after.job.envs)
    notes = []
    if after.sequence > before.sequence:
        key = mode_key(after, after.sequence)
        name = after.job.mode or "without a name"
        begin = "continues from the newest checkpoint of the mode before" if after.continues else "starts fresh"
        notes.append(f"mode {name} {begin}; its results are in {key}/, beside those of earlier modes")
    else:
        notes.append("the present mode goes on in the same folders, from its newest checkpoint")
    changed = [f"{name} ({'new' if name not in old else 'changed'})" for name in new if old.get(name) != new[name]]
    changed += [f"{name} (gone)" for name in old if name not in new]
    return (*notes, f"variables: {', '.join(changed)}") if changed else tuple(notes)


def resume_notes(job: Job) -> tuple[str, ...]:
    """Note the command that is run if there is something to resume from, if it is a different one."""
    return tuple(
        f"{_of(task)}if there is a checkpoint to resume from, this runs instead: {shown(task.later_run)}"
        for task in job.tasks
        if task.later_run
    )


def change_notes(before: Job, after: Job) -> tuple[str, ...]:
    """Note which commands are run from now on, if they have changed; both jobs have the same tasks."""
    notes = []
    for old, new in zip(before.tasks, after.tasks, strict=True):
        if new.run != old.run:
            notes.append(f"{_of(new)}the command is changed from {shown(old.run)} to {shown(new.run)}")
        if new.later_run != old.later_run and not new.later_run:
            notes.append(f"{_of(new)}`resume` is given up: {shown(old.later_run)} isn't run any more")
    return tuple(notes)


def _of(task: Task) -> str:
    return f"task {task.name}: " if task.name else ""


def shown(script: str) -> str:
    """Return a script, cut to the length of a line."""
    line = "; ".join(part.strip() for part in script.strip().splitlines())
    return f"`{line[:_MOST_SHOWN]}{'...' if len(line) > _MOST_SHOWN else ''}`"


def teardown_notes(observed: Observed) -> tuple[str, ...]:
    """Note what can't be fetched."""
    silent = silent_of_gang(observed)
    if silent:
        kept = "what it has uploaded is fetched" if observed.keeps_results else "its results are lost"
        return tuple(f"machine {machine} doesn't answer: {kept}" for machine in silent)
    if observed.machines and observed.report is None:
        kept = (
            "the copy that was made of its results is fetched"
            if observed.keeps_results
            else "nothing can be fetched from it"
        )
        return (f"the machine doesn't answer: {kept}",)
    return ()


def silent_of_gang(observed: Observed) -> tuple[str, ...]:
    """List those of several machines of a run that don't answer, if others do."""
    gang = newest_gang(observed.machines) if observed.all_reports else ()
    return tuple(machine.id for machine in gang if len(gang) > 1 and observed.report_of(machine) is None)


def _left_behind_notes(job: Job, observed: Observed) -> list[str]:
    """Note what happens to files outside of the outputs; the bundled trainer writes none."""
    without = [task for task in job.tasks if not task.outputs]
    if not without or job.bundled_trainer:
        return []
    names = ", ".join(task.name for task in without if task.name)
    usual = LEFT_BEHIND_BYTES if observed.keeps_results else LEFT_BEHIND_OVER_SSH_BYTES
    limit = usual if job.left_behind_bytes is None else job.left_behind_bytes
    whose = f"no `outputs` in {names}" if names else "no `outputs`"
    written = f"{whose}: files that the script writes elsewhere than in $KEDGE_OUTPUT_DIR"
    if not limit:
        return [f"{written} are lost (`left_behind: 0`)"]
    return [f"{written} are kept under left-behind/, newest first, up to {format_bytes(limit)}"]


def _output_notes(job: Job, observed: Observed) -> list[str]:
    """Note which outputs aren't fetched, and until when they can be."""
    patterns = dict.fromkeys(pattern for task in job.tasks for pattern in task.output_patterns)
    if not patterns:
        return []
    until = "any time later" if observed.keeps_results else "before the machine ends"
    folders = ", ".join(dict.fromkeys(literal_folder(pattern) for pattern in patterns))
    return [f"of {folders}, only {', '.join(patterns)} is fetched; `kedge fetch --only all` brings the rest, {until}"]


def _code_notes(job: Job) -> list[str]:
    is_without = job.tasks and job.workdir is None and not job.bundled_trainer
    return ["no code is sent: the job has no `workdir`"] if is_without else []


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
    if after_start.follow or observed.ends_by_itself or spec.keep or not spec.job.tasks:
        return []
    alone = "nobody follows the command, and its machine can't end itself"
    if not observed.keeps_results:
        return [f"{alone}: it bills until its deadline, unless `kedge teardown` fetches the results and ends it before"]
    return [f"{alone}: once the results are uploaded, `kedge reap` of this computer ends it, by hand or by its timer"]


def _together_notes(spec: LaunchSpec, observed: Observed, actions: tuple[Action, ...]) -> list[str]:
    """Note what holds for several machines: rented together, replaced, or fewer than the run was launched with."""
    if spec.job.num_nodes == 1:
        return []
    creations = [action for action in actions if isinstance(action, CreateMachine)]
    if any(action.joins for action in creations):
        kept = [machine.id for machine in observed.machines if machine.id in creations[0].joins]
        return [
            f"left of the run: {', '.join(kept)}; if what is lost can't be replaced there, the next plan rents all "
            "machines elsewhere, and ends these",
            f"all machines then start together from the newest checkpoint{_until_then(spec, observed)}",
        ]
    if creations:
        return _new_together_notes(spec, observed)
    left = machines_left(observed.machines, observed.all_reports)
    if left and len(left) < spec.job.num_nodes and goes_on_without(spec.job, left):
        none = "no other one like them is for sale within the budget"
        return [f"the run goes on with {len(left)} of {spec.job.num_nodes} machines: {none}"]
    return []


def _until_then(spec: LaunchSpec, observed: Observed) -> str:
    left = machines_left(observed.machines, observed.all_reports)
    return "; until then the others go on without it" if goes_on_without(spec.job, left) else ""


def _new_together_notes(spec: LaunchSpec, observed: Observed) -> list[str]:
    own_group, elastic = spec.resources.site.security_group, spec.job.elastic
    notes = [
        f"the {spec.job.num_nodes} machines are one: if one can't be rented or doesn't boot, all are ended; one that "
        "is lost later is replaced at the same place, or else all elsewhere; the outcome is that of the first"
    ]
    if spec.job.tasks and not observed.keeps_results:
        notes.append("without an object store, no machine can resume from what another one has written")
    if own_group:
        notes.append(f"{own_group} must admit all traffic from itself, and let out all to itself")
    if elastic:
        notes.append(
            "`elastic`: torchrun goes on without a lost machine, as long as the first one is there, "
            f"and {elastic[0]} in all"
        )
    return notes


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
    fetched = [mount for mount in job.data if mount.is_fetched]
    if not job.tasks:
        return [f"{_address(mount)} is not fetched: the job has no command" for mount in fetched]
    return [
        f"the machine fetches {_address(mount)} to {mount.target} before the command starts"
        f"{', unless the volume has it already' if job.is_on_volume(mount) else ''}"
        for mount in fetched
    ]


def _address(mount: DataMount) -> str:
    """Return an address without its query string, which may be a signature."""
    return mount.source.partition("?")[0]
