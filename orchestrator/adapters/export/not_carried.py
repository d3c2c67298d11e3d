"""What kedge does for a run that another scheduler won't: printed by the export, and written into its README."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.adapters.export.disks import asked_gib, local_gib
from orchestrator.adapters.export.model import Target
from orchestrator.adapters.export.sagemaker import is_in_s3
from orchestrator.adapters.providers.aws.market.catalog import InstanceType
from orchestrator.core.job import Job
from orchestrator.core.task import OnFailure
from orchestrator.core.values.units import format_usd

_DEADLINE = {
    Target.BATCH: "Batch's timeout counts from the start of an attempt, and ends a container, not its machine. The "
    "command itself stops at the deadline, counted from its first attempt",
    Target.SAGEMAKER: "SageMaker ends the job at MaxRuntimeInSeconds. With spot, waiting for a machine counts as well",
    Target.SLURM: "Slurm's time limit counts from the job's start, and begins anew when the job is requeued",
}
_GRACE = {
    Target.BATCH: "when Batch ends a job, or its machine is reclaimed, the container has 30 seconds",
    Target.SAGEMAKER: "when SageMaker ends a job, or its machine is reclaimed, the container has two minutes at most",
    Target.SLURM: "after scancel, requeue or a preemption the job has the cluster's KillWait (30 seconds by default) "
    "or GraceTime",
}
_CHECKPOINTS = {
    Target.BATCH: "results and checkpoints are written to the EFS file system",
    Target.SAGEMAKER: "SageMaker copies /opt/ml/checkpoints to S3 by itself, whether a checkpoint is complete or not",
    Target.SLURM: "results and checkpoints are written to the folder of the export, which must be on a file system "
    "that all nodes share",
}
_SECRETS = {
    Target.BATCH: "Batch reads them from Systems Manager's parameter store when the job starts; deleting them is up to "
    "you",
    Target.SAGEMAKER: "SageMaker has no secrets, and its documentation warns against secrets in Environment: the "
    "command starts without them. Let the image or the command read them with the job's role",
    Target.SLURM: "they come from the shell that submits, and then lie in Slurm's own files for the job's life; or "
    "from secrets.env in this folder, which only you may read",
}
_VOLUMES = {
    Target.BATCH: "data are on the EFS file system, but what the command itself writes there is on the machine's disk, "
    "and lost with it",
    Target.SAGEMAKER: "its files are on the job's disk, and lost with the job",
    Target.SLURM: "its files are in the run's folder",
}
# fact: sagemaker-checkpoints
_SEVERAL = {
    Target.BATCH: "each takes the newest in the common folder",
    Target.SAGEMAKER: "each has its own /opt/ml/checkpoints, and after a failure takes the newest that it has itself. "
    "Only a new start of the job gives all of them the same, and files with one name replace each other in S3",
    Target.SLURM: "each takes the newest in the common folder",
}


def list_not_carried(job: Job, target: Target, kind: InstanceType | None = None) -> tuple[str, ...]:
    """List what a scheduler won't do for a job, one sentence each, which begins with the key or the topic.

    Args:
        job: what was exported.
        target: where to.
        kind: AWS's type of machine.
    """
    return (*_always(job, target), *_sometimes(job, target, kind))


def _always(job: Job, target: Target) -> Iterator[str]:
    cap = format_usd(job.budget_usd) if job.budget_usd is not None else "any amount"
    yield f"deadline: {_DEADLINE[target]}. No watchdog outside of the machine ends it, and no reaper."
    yield f"budget: nothing stops the job at {cap}, and no worst case is checked."
    yield f"grace: {_GRACE[target]}."
    yield f"recover: {_recovery(job, target)}"
    yield (
        f"checkpoints: {_CHECKPOINTS[target]}. kedge's object store isn't used: no copy of the newest checkpoint is "
        "kept aside, and truncated ones are skipped, not restored."
    )
    yield "machine: its GPUs aren't tested before the job starts, and torch is the one that is there."
    yield "kedge's commands (status, logs, fetch, extend, cost, reap) don't know the job."


def _recovery(job: Job, target: Target) -> str:
    # fact: batch-loss-of-a-node
    if target is Target.BATCH and job.num_nodes > 1:
        return (
            "Batch starts a job again whose main machine was lost; after the loss of another one the job ends when the "
            "command of the main one fails, and isn't started again. No other provider, region or type is tried."
        )
    again = {
        Target.BATCH: "Batch starts a job again whose machine was lost",
        Target.SAGEMAKER: "SageMaker starts a spot job again whose machine was reclaimed, but not one that has failed",
        Target.SLURM: "Slurm requeues a job whose node was lost, if the cluster allows it",
    }[target]
    lost = "" if job.num_nodes == 1 else "; of several machines, all start again"
    return f"{again}{lost}. No other provider, region or type of machine is tried."


def _sometimes(job: Job, target: Target, kind: InstanceType | None) -> Iterator[str]:
    yield from _data(job, target)
    if job.from_shell:
        yield f"secrets ({', '.join(job.from_shell)}): {_SECRETS[target]}."
    yield from (f"{key}: {lost}." for key, lost in (*_keys(job, target), *_sizes(job, target, kind)) if lost)


def _data(job: Job, target: Target) -> Iterator[str]:
    own = [mount.target for mount in job.data if not mount.is_fetched]
    fetched = [
        mount.target for mount in job.data if mount.is_fetched and not (target is Target.SAGEMAKER and is_in_s3(mount))
    ]
    if own:
        yield f"data ({', '.join(own)}): nothing is sent from this computer; README.md has the commands."
    if fetched:
        yield f"data ({', '.join(fetched)}): the job doesn't download it; README.md says where it has to be."
    if job.checks:
        yield "check: the scheduler doesn't run it, and the job starts without it; README.md has the commands."
    elif job.data:
        yield "check: data isn't checked before the job starts."


def _keys(job: Job, target: Target) -> Iterator[tuple[str, str]]:
    """Yield keys of the job file, and what is lost of each; empty if the job doesn't use it."""
    several = len(job.tasks) > 1
    yield "sudo", "the scheduler decides who the job runs as" if job.sudo else ""
    yield (
        "tasks",
        "each is a job of its own, which may run on another machine; a restart of one doesn't concern the others"
        if several
        else "",
    )
    yield (
        "on_failure",
        "the other tasks go on; end them with the scheduler's own command"
        if several and job.on_failure is OnFailure.STOP_ALL
        else "",
    )
    yield "elastic", f"the job runs on {job.num_nodes} machines or not at all" if job.elastic else ""
    yield (
        "num_nodes",
        f"the machines don't agree on a checkpoint first: {_SEVERAL[target]}" if job.num_nodes > 1 else "",
    )
    yield "resources.image_id", "not used" if job.resources.image_id else ""
    yield (
        "KEDGE_TORCH_WHEEL",
        "torch isn't installed" if dict(job.envs).get("KEDGE_TORCH_WHEEL") not in (None, "none") else "",
    )
    yield "left_behind", "files outside `outputs` and `checkpoints` are not copied" if job.tasks else ""


def _sizes(job: Job, target: Target, kind: InstanceType | None) -> Iterator[tuple[str, str]]:
    names = ", ".join(volume.name for volume in job.resources.volumes)
    yield "volumes", f"{names}: not attached; {_VOLUMES[target]}" if names else ""
    asked = asked_gib(job.resources)
    yield "resources.disk_size", _disk(asked, target, kind) if asked else ""
    yield (
        "memory",
        "--mem isn't set, so that a job gets the cluster's default. To ask for more: ./submit.sh --mem=64G"
        if target is Target.SLURM
        else "",
    )


def _disk(asked: int, target: Target, kind: InstanceType | None) -> str:
    if target is Target.SLURM or kind is None:
        return f"nothing is reserved: the file system of this folder needs {asked:,} GB"
    if target is Target.BATCH:
        return (
            f"the machines' disks have Batch's default size, and the job asks for {asked:,} GB: set that with a launch "
            "template"
        )
    local = local_gib(kind)
    return (
        f"the local disk of ml.{kind.name} has {local:,} GB, which can't be changed; the job asks for {asked:,} GB: "
        "choose a larger type with --instance-type"
        if 0 < local < asked
        else ""
    )
