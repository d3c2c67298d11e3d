"""Mistakes in a job file: one refusal names the file, the key, its line and what was probably meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.core.errors import BadRequestError

Refuse = Callable[..., BadRequestError]

SNAPSHOT = "snap-0a1b2c3d4e5f60718"

UNSUPPORTED = {
    "service: {readiness_probe: /}": "service",
    "config: {kubernetes: {}}": "config",
    "experimental: {}": "experimental",
    "event_callback: ./x.sh": "event_callback",
    "inputs: {a: 1}": "inputs",
    "pool: p": "pool",
    "resources: {cpus: 4+}": "resources.cpus",
    "resources: {memory: 32+}": "resources.memory",
    "resources: {ports: 8081}": "resources.ports",
    "resources: {any_of: [{infra: aws}]}": "resources.any_of",
    "resources: {ordered: [{infra: aws}]}": "resources.ordered",
    "resources: {autostop: 10m}": "resources.autostop",
    "resources: {job_recovery: none}": "resources.job_recovery",
    "resources: {labels: {a: b}}": "resources.labels",
    "resources: {disk_tier: high}": "resources.disk_tier",
    "resources: {network_tier: best}": "resources.network_tier",
    "resources: {priority: 1}": "resources.priority",
    "modes: {fast: {resources: {cpus: 4}}}": "modes.fast.resources.cpus",
}


@pytest.mark.parametrize(("text", "key"), UNSUPPORTED.items())
def test_a_key_of_skypilot_that_is_not_supported_is_refused_by_name(refuse: Refuse, text: str, key: str) -> None:
    """The refusal names the key and says what to use instead."""
    error = refuse(text)
    assert f"`{key}` is not supported" in error.what
    assert "SkyPilot" in error.why
    assert error.fix


@pytest.mark.parametrize(
    ("text", "line", "key", "fix"),
    [
        ("run: x\nnamee: y", 2, "`namee`", "`name`"),
        ("run: x\nresources:\n  acceleratorz: A10G", 3, "`resources.acceleratorz`", "`accelerators`"),
        ("modes:\n  fast:\n    dedline: 2h", 3, "`modes.fast.dedline`", "`deadline`"),
        ("supervisor:\n  restart: 3", 2, "`supervisor.restart`", "`restarts`"),
        ("expect:\n  durations: 3h", 2, "`expect.durations`", "`duration`"),
        ("data:\n  - {source: a, goal: b, target: c}", 2, "`data[0].goal`", "source, target"),
        ("modes:\n  resources:\n    resources:\n      regionn: x", 4, "regionn", "`region`"),
        ("modes:\n  fast:\n    workdir: .", 3, "`modes.fast.workdir`", "at the top"),
        ("supervisor: tmx", 1, "`supervisor`", "tmux"),
        ("supervisor:\n\n  kind: systemdd", 3, "`supervisor.kind`", "systemd"),
        ("resources: {infra: asw}", 1, "`resources.infra`", "aws"),
        ("resources:\n  cloud: gcp", 2, "`resources.cloud`", "aws, do, local"),
    ],
)
def test_an_unknown_word_suggests_the_nearest(
    refuse: Refuse, folder: Path, text: str, line: int, key: str, fix: str
) -> None:
    """File and line come first, then the dotted key. The fix names the nearest word, or all valid ones."""
    error = refuse(text)
    assert error.what.startswith(f"{folder}/kedge.yaml:{line}: ")
    assert key in error.what
    assert fix in error.fix


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("deadline: 90", "a number with a unit"),
        ("deadline: 1:30", "a number with a unit"),
        ("deadline: 2 hours", "a number with a unit"),
        ("deadline: 0h", "not positive"),
        ("deadline: 99999999999999999999d", "longer than a year"),
        ("deadline: [2h]", "not a single value"),
        ("deadline: on", "a number with a unit"),
        ("budget: ten", "not an amount of dollars"),
        ("budget: -1", "not an amount of dollars"),
        ("budget: .nan", "not an amount of dollars"),
        ("budget: 1e300", "more than a million"),
        ("budget: {usd: 1}", "not a single value"),
        ("resources: {accelerators: 'A10G:0'}", "GPUs of one kind"),
        ("resources: {accelerators: 'A10G:0.5'}", "GPUs of one kind"),
        ("resources: {accelerators: {}}", "GPUs of one kind"),
        ("resources: {accelerators: [A100, H100]}", "several kinds"),
        ("resources: {accelerators: {A100:1, H100:1}}", "several kinds"),
        ("resources: {disk_size: big}", "not a disk size"),
        ("resources: {disk_size: 100MB}", "not a disk size"),
        ("resources: {disk_throughput: 3000}", "outside of what gp3 volumes have"),
        ("resources: {disk_size: 4, disk_iops: 9000}", "a disk of 4 GiB can't have 9,000 IOPS"),
        ("volumes: {v: {name: v, size: 100, throughput: 50}}", "throughput: 50 is outside"),
        ("volumes: {v: {name: v, size: 100, iops: 90000}}", "iops: 90,000 is outside"),
        ("volumes: {v: {name: v, size: 500, throughput: 1000, iops: 3000}}", "3,000 IOPS are too few for 1,000 MiB/s"),
        ("volumes: {v: {name: v, size: 4, throughput: 1000}}", "a disk of 4 GiB can't have 4,000 IOPS"),
        ("volumes: {v: {name: v, size: 4, snapshot: ami-0a1b2c3d4e5f60718}}", "is not the id of one"),
        ("volumes: {v: {name: v, size: 4, initialization_rate: 200}}", "initialization_rate needs a snapshot"),
        (f"volumes: {{v: {{name: v, size: 4, snapshot: {SNAPSHOT}, initialization_rate: 99}}}}", "outside of what EBS"),
        (
            f"volumes: {{v: {{name: v, size: 4, snapshot: {SNAPSHOT}, initialization_rate: 301}}}}",
            "outside of what EBS",
        ),
        ("resources: {use_spot: perhaps}", "not true or false"),
        ("resources: {infra: aws/a/b/c}", "not a place"),
        ("resources: {infra: aws//b}", "not a place"),
        ("resources: {infra: aws, region: us-east-1}", "sets the place already"),
        ("resources: {image_id: 'docker:ubuntu'}", "not an image"),
        ("resources: {image_id: {us-east-1: ami-1}}", "not a single value"),
        ("resources: [aws]", "a mapping of keys to values"),
        ("num_nodes: 0", "not a number of machines"),
        ("num_nodes: 65", "1 to 64 machines"),
        ("num_nodes: two", "not a number of machines"),
        ("num_nodes: 2\nelastic: 2", "not a range of machines"),
        ("num_nodes: 2\nelastic: 0..2", "not a range of machines"),
        ("num_nodes: 2\nelastic: 3..2", "not a range of machines"),
        ("num_nodes: 5\nelastic: 2..4", "the run has 5 machines, which is not within 2..4"),
        ("elastic: 2..4", "the run has 1 machine, which is not within 2..4"),
        ("num_nodes: 2\nvolumes: {v: {name: scans, size: 100}}", "2 machines can't share the volume scans"),
        ("num_nodes: 2\nstart: boot", "2 machines can't start at boot"),
        ("name: My_Task", "my-task"),
        ("name: " + "a" * 31, "can't be a job's name"),
        ("name: -a", "can't be a job's name"),
        ("workdir: nowhere", "is not there"),
        ("workdir: kedge.yaml", "not a folder"),
        ("workdir: ~nobody-has-this-name/x", "not a path"),
        ("workdir: {url: https://github.com/a/b}", "clones no repository"),
        ("outputs: [../x]", "leads out"),
        ("outputs: [/x]", "not within the working folder"),
        ("outputs: ['.']", "names no folder"),
        ("outputs: {a: b}", "is not a list"),
        ("checkpoints: a/../../b", "leads out"),
        ("outputs: [a, a/b]", "overlap"),
        ("outputs: [a]\ncheckpoints: a", "overlap"),
        ("outputs: [a]\ncheckpoints: a/b", "overlap"),
        ("data: {v: .}\nvolumes: {v: {name: v, size: 1}}", "overlap"),
        (
            "data: {v: 's3://bucket/c/'}\nvolumes: {v: {name: v, size: 1}}",
            "data may be inside a volume, in a folder",
        ),
        ("data: {v: 's3://bucket/c/'}\nvolumes: {v/a: {name: v, size: 1}}", "overlap"),
        ("volumes: {v: {name: v, size: 1}}\ndata: {v/a: ., v/a/b: 's3://bucket/c/'}", "overlap"),
        ("data: {data: nowhere}", "is not there"),
        ("data: {data: gs://bucket/x}", "gs://"),
        ("data: {/data: .}", "not within the working folder"),
        ("data: {~/data: .}", "not within the working folder"),
        ("data: [{source: .}]", "target` is missing"),
        ("data: [.]", "a mapping of keys to values"),
        ("file_mounts: {/data: .}", "write data"),
        ("file_mounts: {data: s3://Bucket_}", "s3://"),
        ("file_mounts: {data: {name: b, mode: MOUNT}}", "mounts no bucket"),
        ("envs: {1X: a}", "variable's name"),
        ("envs: {A: [1]}", "not a single value"),
        ("envs: {KEDGE_RUN_ID: a}", "kedge's own"),
        ("envs: {KEDGE_TORCH_WHEEL: rocm 6.4}", "not a tag of torch's wheels"),
        ("envs: {A: null}", "isn't set"),
        ("secrets: {A: hunter2}", "whoever reads the repository"),
        ("secrets: [A]", "isn't set"),
        ("secrets: A", "not a list of names"),
        ("supervisor: {restarts: -1}", "larger number"),
        ("supervisor: {restarts: many}", "whole number"),
        ("supervisor: {grace: 60}", "a number with a unit"),
        ("modes: {'a b': {}}", "mode's name"),
        ("modes: [fast]", "a mapping of keys to values"),
        ("run: [a, b]", "not a single value"),
    ],
)
def test_an_invalid_value_is_refused_with_its_key(refuse: Refuse, text: str, says: str) -> None:
    """The error says what is wrong; each of its parts is one line."""
    error = refuse(text)
    key = text.splitlines()[-1].split(":")[0]
    assert key in error.what
    assert says in str(error)
    assert all("\n" not in part for part in (error.what, error.why, error.fix))


def test_the_value_of_a_secret_is_never_shown(refuse: Refuse) -> None:
    """A refusal may end up in a log."""
    assert "hunter2" not in str(refuse("secrets: {A: hunter2}"))


def test_a_name_that_is_a_secret_and_a_variable_is_refused(refuse: Refuse) -> None:
    """As a variable it would be shown."""
    error = refuse("envs: {A: x}\nsecrets: [A]", environ={"A": "y"})
    assert "under `envs` too" in error.what


def test_all_mistakes_are_reported_at_once_in_the_order_of_lines(refuse: Refuse) -> None:
    """One line for each, so that a file can be corrected in one go."""
    error = refuse("deadline: 90\nrun: x\nresources:\n  cpus: 4\nnamee: y\nsupervisor: tmx\n")
    assert error.what.endswith(":1: 4 mistakes")
    lines = [line.split(":")[0].strip() for line in error.why.splitlines()]
    assert lines == ["line 1", "line 4", "line 5", "line 6"]


def test_only_the_first_of_very_many_mistakes_are_listed(refuse: Refuse) -> None:
    """The rest is counted: a file that is no job file at all doesn't fill the terminal."""
    error = refuse("\n".join(f"key{n}: x" for n in range(50)))
    assert len(error.why.splitlines()) == 11
    assert error.why.endswith("and 40 more")


def test_an_unknown_mode_suggests_the_nearest(refuse: Refuse) -> None:
    """The refusal lists the existing modes."""
    error = refuse("modes: {validate: {}, full: {}}", mode="validat")
    assert error.why == "its modes are validate, full"
    assert error.fix == "did you mean validate?"
    assert "no `modes`" in refuse("run: x", mode="fast").why


def test_a_mistake_in_a_mode_is_refused_with_the_modes_line(refuse: Refuse) -> None:
    """Not with the line of the same key in the job."""
    text = "resources: {infra: aws}\nmodes:\n  fast:\n    resources:\n      infra: gcp\n"
    assert ":5: `modes.fast.resources.infra`" in refuse(text, mode="fast").what


@pytest.mark.parametrize("secrets", ["[A]", "[B, A]", "{A: }"])
def test_a_name_in_a_modes_list_is_refused_with_the_lists_line(refuse: Refuse, secrets: str) -> None:
    """A name in a list has no line of its own. A name of the job that the mode's block lacks keeps the job's line."""
    text = f"envs: {{A: x, C: }}\nmodes:\n  fast:\n    envs: {{D: x}}\n    secrets: {secrets}\n"
    missing = refuse(text.replace("A: x, ", ""), mode="fast", environ={"B": "x", "C": "x"})
    assert ":5: `modes.fast.secrets.A`" in missing.what
    assert ":1: `envs.C`" in refuse(text, mode="fast", environ={"A": "x", "B": "x"}).what


def test_a_mistake_in_another_mode_is_refused_too(refuse: Refuse) -> None:
    """A job file is valid only if all its modes are."""
    error = refuse("modes:\n  fast: {}\n  full: {deadline: 90}\n", mode="fast")
    assert "`modes.full.deadline`" in error.what
