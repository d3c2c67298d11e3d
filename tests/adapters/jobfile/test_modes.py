"""A mode overrides keys of its job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DataMount, Job, Resources
from orchestrator.core.modes import chosen_mode
from orchestrator.core.offer import Accelerators
from orchestrator.core.task import Expect, SupervisorKind, SupervisorSpec

Read = Callable[..., Job]
Refuse = Callable[..., BadRequestError]


MODES = """
resources: {infra: aws/us-east-1/us-east-1a, accelerators: A10G, instance_type: g5.xlarge, disk_size: 100}
envs: {A: a, B: b}
secrets: [S]
supervisor: screen
deadline: 2h
run: long
outputs: [a]
recover: true
expect: {duration: 1h, first_step: 1m}
modes:
  fast:
    recover: false
    resources: {accelerators: {MI300X: 8}}
    envs: {B: bb, C: c}
    secrets: [T]
    supervisor: {restarts: 0}
    run: short
    outputs: [b, c]
    expect: {duration: 5m}
  empty:
  elsewhere: {resources: {infra: do}}
  region: {resources: {region: us-west-2}}
"""


def test_a_mode_is_merged_into_the_job(read: Read) -> None:
    """Mappings are merged key by key, anything else is replaced. What the mode leaves out stays."""
    job = read(MODES, mode="fast", environ={"S": "s", "T": "t"})
    assert job.mode == "fast"
    assert job.envs == (("A", "a"), ("B", "bb"), ("C", "c"))
    assert job.secrets == ("S", "T")
    assert job.supervisor == SupervisorSpec(kind=SupervisorKind.SCREEN, restarts=0)
    assert (job.tasks[0].run, job.tasks[0].outputs, job.time_limit) == ("short", ("b", "c"), timedelta(hours=2))
    assert not job.recover
    assert job.expect == Expect(duration=timedelta(minutes=5), first_step=timedelta(minutes=1))
    assert job.resources.accelerators == Accelerators(name="mi300x", count=8)
    assert (job.resources.zone, job.resources.disk_gib) == ("us-east-1a", 100)


def test_an_empty_mode_changes_nothing(read: Read) -> None:
    """Nor do the modes that were not chosen."""
    environ = {"S": "s"}
    plain = read(MODES, environ=environ)
    assert plain.tasks[0].run == "long"
    assert read(MODES, mode="empty", environ=environ) == msgspec.structs.replace(plain, mode="empty")


def test_another_provider_drops_what_only_the_first_one_knows(read: Read) -> None:
    """A region, a zone, a type and an image of AWS mean nothing elsewhere; the GPU and the disk do."""
    resources = read(MODES, mode="elsewhere", environ={"S": "s"}).resources
    assert resources == Resources(provider="do", accelerators=Accelerators(name="a10g"), disk_gib=100)


def test_another_region_drops_the_zone(read: Read) -> None:
    """A zone lies in one region."""
    resources = read(MODES, mode="region", environ={"S": "s"}).resources
    assert (resources.regions, resources.zone, resources.instance_type) == (("us-west-2",), None, "g5.xlarge")


def test_data_in_a_mode_replaces_data_with_the_same_target(read: Read, folder: Path) -> None:
    """For example less data for a quick mode, in the folder where the command looks."""
    for name in ("full", "small", "extra"):
        (folder / name).mkdir()
    text = "data: {in: full, more: extra}\nmodes: {fast: {data: [{source: small, target: in}]}}"
    job = read(text, mode="fast")
    assert job.data == (
        DataMount(source=str(folder / "small"), target="in"),
        DataMount(source=str(folder / "extra"), target="more"),
    )


ARGUMENTS = """
run: python train.py --epochs $EPOCHS --rate $RATE --first $FIRST --name $NAME
envs: {EPOCHS: 10, RATE: 0.1, FIRST: 0, NAME: plain, OTHER: o}
expect: {duration: 2h, basis: published, first_step: 5m}
modes:
  custom:
    arguments: [EPOCHS, RATE]
    envs: {EPOCHS: 20}
  named: {arguments: [FIRST, NAME], expect: {duration: 1h}}
  fast: {envs: {EPOCHS: 1}}
"""


def test_a_modes_arguments_fill_its_variables(read: Read) -> None:
    """They have priority over the file's values, and `--env` over them; the job remembers what was given."""
    job = read(ARGUMENTS, mode="custom 100  1e-4")
    assert (job.mode, job.mode_arguments) == ("custom", ("100", "1e-4"))
    assert dict(job.envs) == {"EPOCHS": "100", "RATE": "1e-4", "FIRST": "0", "NAME": "plain", "OTHER": "o"}
    assert chosen_mode(job) == "custom 100 1e-4"
    assert dict(read(ARGUMENTS, mode="custom 100 256", env=["RATE=8"]).envs)["RATE"] == "8"
    tasks = "tasks: {a: {run: x, envs: {EPOCHS: 5, B: b}}}\nmodes: {custom: {arguments: EPOCHS}}"
    assert read(tasks, mode="custom 7").tasks[0].envs == (("B", "b"),)


def test_the_time_that_a_mode_with_arguments_takes_is_unknown(read: Read) -> None:
    """It depends on the values; unless the mode says one of its own."""
    assert read(ARGUMENTS, mode="custom 1 1").expect == Expect(first_step=timedelta(minutes=5))
    assert read(ARGUMENTS, mode="named 0 b").expect.duration == timedelta(hours=1)
    assert read(ARGUMENTS, mode="fast").expect.duration == timedelta(hours=2)


@pytest.mark.parametrize("mode", ["custom 1 .5", "custom 999 1e-4", "custom 3 2", "named 0 b", "named 12 c-3"])
def test_values_like_those_of_the_file_are_accepted(read: Read, mode: str) -> None:
    """A variable that is 0 in the file may be 0."""
    assert chosen_mode(read(ARGUMENTS, mode=mode)) == mode


@pytest.mark.parametrize(
    ("mode", "what", "why"),
    [
        ("custom abc 1", "'abc' can't be the EPOCHS", "has EPOCHS: 20, a whole number above 0"),
        ("custom 0 1", "'0' can't be the EPOCHS", "has EPOCHS: 20, a whole number above 0"),
        ("custom 1e3 1", "'1e3' can't be the EPOCHS", "has EPOCHS: 20, a whole number above 0"),
        ("custom +5 1", "'+5' can't be the EPOCHS", "has EPOCHS: 20, a whole number above 0"),
        ("custom 1 nan", "'nan' can't be the RATE", "has RATE: 0.1, a number above 0"),
        ("custom 1 0.0", "'0.0' can't be the RATE", "has RATE: 0.1, a number above 0"),
        ("named 1.5 b", "'1.5' can't be the FIRST", "has FIRST: 0, a whole number"),
    ],
)
def test_values_unlike_those_of_the_file_are_refused(refuse: Refuse, mode: str, what: str, why: str) -> None:
    """A word for a number would fail on a machine that is paid for."""
    error = refuse(ARGUMENTS, mode=mode)
    assert what in error.what
    assert why in error.why


@pytest.mark.parametrize(
    ("mode", "what", "fix"),
    [
        ("custom", "mode custom takes 2 values: EPOCHS, RATE", 'write --mode "custom EPOCHS RATE"'),
        ("custom 1", "mode custom takes 2 values: EPOCHS, RATE", 'write --mode "custom EPOCHS RATE"'),
        ("custom 1 2 3", "mode custom takes 2 values: EPOCHS, RATE", 'write --mode "custom EPOCHS RATE"'),
        ("fast 1", "mode fast takes no values", "write --mode fast"),
        ("custom 1 $(id)", "'$(id)' can't be the RATE of mode custom", "--env RATE=..."),
        ("custom 1 --help", "'--help' can't be the RATE of mode custom", "--env RATE=..."),
        ("custm 1 2", "has no mode 'custm'", "did you mean custom?"),
        ("", "has no mode ''", "choose one of custom, named, fast"),
    ],
)
def test_arguments_that_a_mode_does_not_take_are_refused(refuse: Refuse, mode: str, what: str, fix: str) -> None:
    """The error says which ones it takes."""
    error = refuse(ARGUMENTS, mode=mode)
    assert what in error.what
    assert fix in error.fix


@pytest.mark.parametrize("names", ["[]", "[A, A]", "[1a]", "[KEDGE_X]", "{A: 1}"])
def test_the_names_of_arguments_are_those_of_variables(refuse: Refuse, names: str) -> None:
    """Each once; whichever mode is chosen."""
    assert "`modes.c.arguments`" in refuse(f"run: x\nmodes: {{c: {{arguments: {names}}}}}").what
    assert "`arguments` is not a key" in refuse("run: x\narguments: [A]").what
