"""Job files and the user's settings: YAML that a stranger may have written.

Promises: it is read or refused with exit code 2, in bounded time; a job is the same when it is read again, and when
the ledger has stored it; a plan can print it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import msgspec

from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job, read_user_settings
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.values.printable import find_unprintable
from tests.fuzz.forms import AS_YAML
from tests.fuzz.target import Target

_ENVIRON = {"A": "a", "HOME": "/nowhere", "HF_TOKEN": "marker-secret", "AWS_SECRET_ACCESS_KEY": "marker-own-key"}
_MODES = re.compile(rb"^ {2,4}([\w.-]{1,20}):", re.MULTILINE)
_MOST_MODES = 1


def _run(data: bytes, folder: Path) -> None:
    if _leads_elsewhere(data, folder):
        return
    path = folder / "kedge.yaml"
    path.write_bytes(data)
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text("")
    (folder / "code" / "out").symlink_to("/etc")
    with suppress(BadRequestError):
        assert isinstance(read_user_settings(path), tuple)
    for mode in [found.decode() for found in dict.fromkeys(_MODES.findall(data))][:_MOST_MODES]:
        with suppress(BadRequestError):
            _require_sound(_read(path, mode))
    _require_sound(_read(path, None))


def _read(path: Path, mode: str | None) -> Job:
    return read_job(path, mode=mode, overrides=Overrides(), environ=_ENVIRON, providers=("aws", "do", "local"))


def _require_sound(job: Job) -> None:
    assert job == _read(Path(job.path), job.mode or None)
    written = msgspec.json.encode(LaunchSpec(run_id="r", provider="local", job=job))
    assert msgspec.json.decode(written, type=LaunchSpec).job == job
    assert b"marker" not in written
    resources = job.resources
    names = [job.name, job.mode, *job.secrets, *(name for name, _ in job.envs)]
    folders = [folder for task in job.tasks for folder in task.result_folders]
    names += [*folders, *job.setup_inputs, *(task.name for task in job.tasks), *(task.after for task in job.tasks)]
    names += [text for mount in job.data for text in (mount.source, mount.target, mount.written)]
    names += [text for volume in resources.volumes for text in (volume.name, volume.target, volume.snapshot_id or "")]
    names += [
        text for text in (resources.provider, resources.zone, resources.instance_type, resources.image_id) if text
    ]
    for name in names:
        assert not find_unprintable(name), name
    for target in [
        *folders,
        *job.setup_inputs,
        *(mount.target for mount in job.data),
        *(volume.target for volume in resources.volumes),
    ]:
        assert not target.startswith("/")
        assert ".." not in target.split("/")


def _leads_elsewhere(data: bytes, folder: Path) -> bool:
    """Return whether a plan would search this computer's folders, which may take hours."""
    try:
        waiting = [AS_YAML.read(data)]
    except ValueError:
        return False
    seen: dict[int, object] = {}
    while waiting:
        each = waiting.pop()
        if isinstance(each, str) and _is_elsewhere(each, folder):
            return True
        if isinstance(each, dict | list) and id(each) not in seen:
            seen[id(each)] = each
            waiting += [*each, *each.values()] if isinstance(each, dict) else each
    return False


def _is_elsewhere(text: str, folder: Path) -> bool:
    with suppress(OSError, ValueError, RuntimeError):
        place = (folder / Path(text.strip()).expanduser()).resolve()
        return place.exists() and not place.is_relative_to(folder)
    return False


TARGET = Target(
    name="jobs",
    run=_run,
    allowed=(BadRequestError,),
    form=AS_YAML,
    tokens=(
        *(b"*a", b"&a ", b"<<: ", b"!!int ", b"? ", b"- ", b": ", b"|\n ", b"%YAML 1.1\n", b"---\n", b"\t"),
        *(
            b"modes:\n  x:\n",
            b"resources:\n",
            b"infra: aws/*/",
            b"accelerators: ",
            b"secrets: [",
            b"data: {a: ",
            b"volumes:\n",
            b"tasks:\n  a: {run: x, gpus: 0-6, after: b}\n",
            b"on_failure: stop-all",
        ),
        *(
            b"follow_links: true",
            b"start: boot",
            b"deadline: 1h",
            b"$A",
            b"${A}",
            b"sudo: true",
            b"s3://",
            b"hf://datasets/",
        ),
    ),
    examples=90,
    modules=("orchestrator", "yaml"),
)
