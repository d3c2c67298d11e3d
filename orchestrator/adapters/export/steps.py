"""The next steps after an export: sentences, and the commands to type, which the README has as well."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

from orchestrator.adapters.export.batch import environment_name, has_several_nodes, secret_parameter
from orchestrator.adapters.export.model import Target
from orchestrator.adapters.export.sagemaker import is_file, is_in_s3
from orchestrator.adapters.providers.aws.market.catalog import InstanceType
from orchestrator.core.job import DataMount, Job

COMMAND = "    "
"""The beginning of a step that is a command."""


def list_steps(job: Job, target: Target, kind: InstanceType | None = None) -> tuple[str, ...]:
    """List what to do, in this order; commands are indented, and typed in the export's folder.

    Args:
        job: what was exported.
        target: where to.
        kind: AWS's type of machine.
    """
    steps = {Target.SAGEMAKER: _sagemaker, Target.SLURM: _slurm}
    own = _batch(job, kind) if kind is not None and target is Target.BATCH else steps[target](job)
    return (*_check(job), *own)


def render_readme(job: Job, target: Target, steps: tuple[str, ...], not_carried: tuple[str, ...]) -> str:
    """Write the export's README.md."""
    mode = f", mode `{job.mode}`" if job.mode else ""
    lines = [
        f"# {job.name} on {target.label}",
        "",
        f"Written by `kedge export --to {target}` from `{job.path.rpartition('/')[2]}`{mode}. To change the job, "
        "change that file and export again with `--force`. kedge's docs/export.md describes the files.",
        "",
        "## Next steps",
        "",
    ]
    was_command = False
    for step in steps:
        is_command = step.startswith(COMMAND)
        lines += [*([] if is_command and was_command else [""]), step]
        was_command = is_command
    lines += ["", "## What this doesn't carry over", "", *(f"- {sentence}" for sentence in not_carried)]
    return "\n".join(lines) + "\n"


def _check(job: Job) -> Iterator[str]:
    if job.checks:
        yield "Check the data on the computer that exports, as a launch would before it rents anything:"
    for command in job.checks:
        yield f"{COMMAND}(cd {shlex.quote(str(Path(job.path).parent))} && {shlex.join(command)})"


def _slurm(job: Job) -> Iterator[str]:
    yield "Copy this folder to a file system that all nodes of the cluster share."
    for mount in job.data:
        yield from _put(mount, f"data/{mount.target}")
    if job.from_shell:
        yield (
            f"Set {', '.join(job.from_shell)} in the shell that submits; or write lines NAME=VALUE into secrets.env, "
            "and let only yourself read it:"
        )
        yield f"{COMMAND}chmod 600 secrets.env"
    yield "If the cluster needs `module load` or `conda activate`, write that into site.sh, which each job reads."
    yield "Submit it; sbatch's own options may follow:"
    yield f"{COMMAND}./submit.sh --partition=gpu"
    yield from _goes_on("as in runs/")
    yield "The log is *.log in this folder; results and checkpoints are in runs/. Ask for a checkpoint, or end the job:"
    yield f"{COMMAND}scancel --signal=USR1 --batch JOB"
    yield f"{COMMAND}scancel JOB"


def _goes_on(which: str) -> Iterator[str]:
    yield f"A run goes on from its checkpoints in a new job, with a new deadline. RUN is the run's name, {which}:"
    yield f"{COMMAND}RUN=RUN ./submit.sh"


def _batch(job: Job, kind: InstanceType) -> Iterator[str]:
    yield "Build the job's image on one with its Python, and push it to a registry that the machines reach:"
    yield f"{COMMAND}docker build --build-arg BASE=pytorch/pytorch:latest -t IMAGE ."
    yield f"{COMMAND}docker push IMAGE"
    yield "Fill in values.sh: image, network, file system and roles."
    if has_several_nodes(job):
        # fact: batch-network-of-several-nodes
        yield (
            "The job has several machines: SUBNETS must be private ones with a route to a NAT gateway, because Batch "
            "gives its containers no public address; and in SECURITY_GROUPS they must reach each other on all ports."
        )
    for mount in job.data:
        yield from _put(mount, f"data/{mount.target}", where="on the EFS file system")
    for name in job.from_shell:
        yield f"Store the secret {name}, from this shell's variable:"
        yield (
            f'{COMMAND}printf %s "${name}" | aws ssm put-parameter --type SecureString --overwrite '
            f"--name {secret_parameter(job, name)} --value file:///dev/stdin"
        )
    yield "Submit it:"
    yield f"{COMMAND}./submit.sh"
    yield from _goes_on("as printed")
    yield "The log is in CloudWatch, group /aws/batch/job. Results and checkpoints are in runs/ on the file system."
    yield "Machines end when the queue is empty; to remove what submit.sh has created:"
    name = environment_name(job, kind)
    yield f"{COMMAND}aws batch update-job-queue --job-queue {name} --state DISABLED"
    yield f"{COMMAND}aws batch delete-job-queue --job-queue {name}"
    yield f"{COMMAND}aws batch update-compute-environment --compute-environment {name} --state DISABLED"
    yield f"{COMMAND}aws batch delete-compute-environment --compute-environment {name}"


def _sagemaker(job: Job) -> Iterator[str]:
    yield "Fill in values.sh: image, role, and a folder in S3."
    for mount in job.data:
        if is_in_s3(mount):
            continue
        if mount.is_fetched:
            yield f"{_download(mount, 'a folder')}; upload that to $S3/data/{mount.target}/."
        else:
            verb = "cp" if is_file(mount) else "sync"
            yield f"Upload the data for {mount.target}:"
            place = f'"$S3/data/"{shlex.quote(mount.target)}'
            yield f"{COMMAND}. ./values.sh; aws s3 {verb} {shlex.quote(mount.source)} {place}"
    yield "Submit it:"
    yield f"{COMMAND}./submit.sh"
    yield "The log is in CloudWatch, group /aws/sagemaker/TrainingJobs. To fetch results, and to end the job:"
    yield f'{COMMAND}. ./values.sh; aws s3 sync "$S3/runs/RUN/" results'
    yield f"{COMMAND}aws sagemaker stop-training-job --training-job-name JOB"
    yield from _goes_on("as printed")


def _put(mount: DataMount, place: str, where: str = "in this folder") -> Iterator[str]:
    if mount.is_fetched:
        yield f"{_download(mount, place)} {where}."
        return
    folder = "" if is_file(mount) else "/"
    yield f"Copy the data to {place} {where}, for example:"
    parent = place.rpartition("/")[0]
    yield f"{COMMAND}mkdir -p {shlex.quote(parent if not folder else place)}"
    yield f"{COMMAND}rsync -a {shlex.quote(mount.source + folder)} {shlex.quote(place + folder)}"


def _download(mount: DataMount, place: str) -> str:
    """Say what a machine of kedge does with an address; the fragment is for kedge, not for the server."""
    url, _, fragment = mount.source.partition("#")
    options = parse_qs(fragment, keep_blank_values=True)
    digest = f", whose SHA-256 is {options['sha256'][-1]}," if "sha256" in options else ""
    if "unpack" in options or url.startswith("kaggle://"):
        return f"Download {url}{digest} and unpack it into {place}"
    return f"Download {url}{digest} to {place}"
