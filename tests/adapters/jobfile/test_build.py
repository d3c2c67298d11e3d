"""A good job file becomes a frozen job."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest

from orchestrator.adapters.jobfile.names import NAME_PATTERN, fit_name
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.adapters.providers.digitalocean import spaces
from orchestrator.core.actions import SendData, describe
from orchestrator.core.credentials import is_own_credential
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import (
    DataMount,
    Expect,
    Job,
    Resources,
    SupervisorKind,
    SupervisorSpec,
)
from orchestrator.core.offer import Accelerators

Read = Callable[..., Job]
Refuse = Callable[..., BadRequestError]


def test_every_key_reaches_the_job(read: Read, folder: Path) -> None:
    """The whole file, read into core's own types."""
    (folder / "data").mkdir()
    job = read(
        """
        name: train
        workdir: .
        num_nodes: 1
        resources:
          infra: aws/us-east-1/us-east-1a
          accelerators: A10G:4
          instance_type: g5.12xlarge
          image_id: ami-0868a20f5a3bf9702
          use_spot: true
          disk_size: 256
        envs: {EPOCHS: 3, DEBUG: on, VERSION: 1.10}
        secrets: {HF_TOKEN: null}
        file_mounts: {input/a: ./data}
        data: [{source: data, target: input/b}]
        setup: pip install -r requirements.txt
        run: python train.py
        outputs: [./results/, logs]
        checkpoints: ckpt
        deadline: 1h30m
        budget: $0.10
        supervisor: {kind: screen, restarts: 5, restart_after: 1m, grace: 2m}
        recover: true
        expect: {duration: 45m, first_step: 30s}
        """,
        environ={"HF_TOKEN": "hf_x"},
    )
    assert job == Job(
        name="train",
        path=str(folder / "kedge.yaml"),
        workdir=str(folder),
        resources=Resources(
            provider="aws",
            regions=("us-east-1",),
            zone="us-east-1a",
            accelerators=Accelerators(name="a10g", count=4),
            instance_type="g5.12xlarge",
            image_id="ami-0868a20f5a3bf9702",
            use_spot=True,
            disk_gib=256,
        ),
        envs=(("EPOCHS", "3"), ("DEBUG", "on"), ("VERSION", "1.10")),
        secrets=("HF_TOKEN",),
        data=(
            DataMount(source=str(folder / "data"), target="input/a"),
            DataMount(source=str(folder / "data"), target="input/b"),
        ),
        setup="pip install -r requirements.txt",
        run="python train.py",
        outputs=("results", "logs"),
        checkpoints="ckpt",
        deadline=timedelta(minutes=90),
        budget_usd=Decimal("0.10"),
        supervisor=SupervisorSpec(
            kind=SupervisorKind.SCREEN,
            restarts=5,
            restart_after=timedelta(minutes=1),
            grace=timedelta(minutes=2),
        ),
        recover=True,
        expect=Expect(duration=timedelta(minutes=45), first_step=timedelta(seconds=30)),
    )


def test_an_almost_empty_file_takes_every_default(read: Read, folder: Path) -> None:
    """A key without a value is as good as none; the name is the folder's, made to fit."""
    assert read("run: python train.py\nsetup:\nresources:\n") == Job(
        name="my-project", path=str(folder / "kedge.yaml"), run="python train.py"
    )


@pytest.mark.parametrize("text", ["My Project", "ÜBER_größe", "...", "x" * 99, "a" + "-" * 40 + "b", ""])
def test_any_name_is_made_to_fit(text: str) -> None:
    """The result is always one that a job file may give itself."""
    assert re.fullmatch(NAME_PATTERN, fit_name(text))


@pytest.mark.parametrize(
    ("written", "accelerators"),
    [
        ("MI300X", Accelerators(name="mi300x")),
        ("A10G:4", Accelerators(name="a10g", count=4)),
        ("{A10G: 4}", Accelerators(name="a10g", count=4)),
        ("{A10G:4}", Accelerators(name="a10g", count=4)),
        ("[A100-80GB:8]", Accelerators(name="a100-80gb", count=8)),
    ],
)
def test_accelerators_are_read_in_all_of_skypilots_shapes(read: Read, written: str, accelerators: Accelerators) -> None:
    """Names are lower case, whoever wrote them how."""
    assert read(f"resources: {{accelerators: {written}}}").resources.accelerators == accelerators


@pytest.mark.parametrize(
    ("written", "gib"), [("256", 256), ("'256'", 256), ("256GB", 256), ("50gib", 50), ("1TB", 1024)]
)
def test_disk_sizes_are_gib(read: Read, written: str, gib: int) -> None:
    """SkyPilot's GB are 2^30 bytes."""
    assert read(f"resources: {{disk_size: {written}}}").resources.disk_gib == gib


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("aws", ("aws", None, None)),
        ("AWS/us-east-1", ("aws", "us-east-1", None)),
        ("aws/*/us-east-1a", ("aws", None, "us-east-1a")),
        ("'*'", (None, None, None)),
        ("'*/tor1'", (None, "tor1", None)),
        ("do/tor1", ("do", "tor1", None)),
        ("DigitalOcean", ("do", None, None)),
        ("local", ("local", None, None)),
    ],
)
def test_infra_names_a_place_as_far_as_it_goes(
    read: Read, written: str, place: tuple[str | None, str | None, str | None]
) -> None:
    """A part `*` asks for nothing."""
    resources = read(f"resources: {{infra: {written}}}").resources
    region = ",".join(resources.regions) or None
    assert (resources.provider, region, resources.zone) == place


@pytest.mark.parametrize(
    ("written", "spot"), [("true", True), ("yes", True), ("on", True), ("no", False), ("False", False)]
)
def test_yaml_booleans_of_all_ages_are_understood(read: Read, written: str, spot: bool) -> None:
    """`yes` and `on` are booleans in the YAML that SkyPilot reads."""
    assert read(f"resources: {{use_spot: {written}}}").resources.use_spot is spot


def test_a_variable_without_a_value_takes_the_laptops(read: Read) -> None:
    """As SkyPilot does; only its name is kept."""
    job = read("envs: {USER_NAME: null, B: x}", environ={"USER_NAME": "ada"})
    assert (job.envs, job.inherited, job.from_shell) == ((("B", "x"),), ("USER_NAME",), ("USER_NAME",))
    assert "ada" not in repr(job)


@pytest.mark.parametrize("text", ["workdir: $V", "data: {in: 'https://example.org/?q=${V}'}", "data: {'in/$V': v2}"])
def test_an_inherited_value_is_put_into_no_path_and_no_address(
    read: Read, refuse: Refuse, folder: Path, text: str
) -> None:
    """A stranger's job file would have the token contacted, and recorded in plain text."""
    (folder / "v2").mkdir()
    error = refuse(f"envs: {{V: null}}\n{text}", environ={"V": "v2"})
    assert "$V can't stand here" in error.what
    assert "v2" not in error.what + error.fix
    assert read(f"envs: {{V: null}}\n{text}", envs=("V=v2",)).inherited == ()


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AMD_DEVCLOUD_TOKEN"),
        *("DIGITALOCEAN_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN", "SPACES_SECRET_ACCESS_KEY"),
    ],
)
def test_kedges_own_credentials_are_given_to_a_job_that_the_user_allows_them_alone(
    read: Read, refuse: Refuse, name: str
) -> None:
    """By name, as a secret or inherited, in the job or in a mode; the file's own value is nobody's credential."""
    environ = {name: "hunter2"}
    for text in (f"secrets: [{name}]", f"envs: {{{name}: null}}"):
        for whole, mode in ((text, None), (f"modes: {{m: {{{text}}}}}", "m")):
            error = refuse(whole, mode=mode, environ=environ)
            assert f"--allow-secret {name}" in error.fix
            assert read(whole, mode=mode, environ=environ, allowed=(name,)).from_shell == (name,)
            refuse(whole, mode=mode, environ=environ, allowed=("OTHER",))
    assert read(f"envs: {{{name}: us-east-1}}").envs == ((name, "us-east-1"),)


def test_every_credential_that_kedge_reads_is_known_as_one() -> None:
    """A provider's new variable can't be forgotten: those that its registry and modules name are compared."""
    names = {spaces._KEY, spaces._SECRET, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
    for entry in PROVIDERS.values():
        names.update(cast("tuple[str, ...]", entry.options.get("token_names", ())))
        names.update(filter(None, (str(entry.options.get("delete_token_name", "")),)))
    assert len(names) == 10
    assert [name for name in names if not is_own_credential(name)] == []


def test_a_job_may_choose_its_torch(read: Read) -> None:
    """The one variable of kedge's that is a job's to set."""
    assert read("envs: {KEDGE_TORCH_WHEEL: none}").envs == (("KEDGE_TORCH_WHEEL", "none"),)


def test_only_the_names_of_secrets_are_kept(read: Read) -> None:
    """A list of names, and SkyPilot's mapping to null or to nothing, are the same."""
    environ = {"A": "hunter2", "B": "hunter3"}
    jobs = [read(text, environ=environ) for text in ("secrets: [A, B]", "secrets: {A: null, B: ''}")]
    assert jobs[0] == jobs[1]
    assert jobs[0].secrets == ("A", "B")
    assert "hunter" not in repr(jobs)


def test_the_jobs_own_variables_stand_in_its_paths(read: Read, folder: Path) -> None:
    """`$NAME` and `${NAME}`; variables of others stay as they are."""
    (folder / "v2").mkdir()
    job = read("envs: {V: v2}\nworkdir: ./$V\nfile_mounts: {'in/${V}/$OTHER': '${V}'}")
    assert job.workdir == str(folder / "v2")
    assert job.data == (DataMount(source=str(folder / "v2"), target="in/v2/$OTHER"),)


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


def test_a_mode_is_laid_over_the_job(read: Read) -> None:
    """Mappings are merged key by key, anything else is replaced; what isn't said stays."""
    job = read(MODES, mode="fast", environ={"S": "s", "T": "t"})
    assert job.mode == "fast"
    assert job.envs == (("A", "a"), ("B", "bb"), ("C", "c"))
    assert job.secrets == ("S", "T")
    assert job.supervisor == SupervisorSpec(kind=SupervisorKind.SCREEN, restarts=0)
    assert (job.run, job.outputs, job.deadline) == ("short", ("b", "c"), timedelta(hours=2))
    assert not job.recover
    assert job.expect == Expect(duration=timedelta(minutes=5), first_step=timedelta(minutes=1))
    assert job.resources.accelerators == Accelerators(name="mi300x", count=8)
    assert (job.resources.zone, job.resources.disk_gib) == ("us-east-1a", 100)


def test_a_mode_that_says_nothing_changes_nothing(read: Read) -> None:
    """Nor do the modes that were not chosen."""
    environ = {"S": "s"}
    plain = read(MODES, environ=environ)
    assert plain.run == "long"
    assert read(MODES, mode="empty", environ=environ) == replace(plain, mode="empty")


def test_another_provider_forgets_the_first_ones_words(read: Read) -> None:
    """A region, a zone, a type and an image of AWS mean nothing elsewhere; the GPU and the disk do."""
    resources = read(MODES, mode="elsewhere", environ={"S": "s"}).resources
    assert resources == Resources(provider="do", accelerators=Accelerators(name="a10g"), disk_gib=100)


def test_another_region_forgets_the_zone(read: Read) -> None:
    """A zone lies in one region."""
    resources = read(MODES, mode="region", environ={"S": "s"}).resources
    assert (resources.regions, resources.zone, resources.instance_type) == (("us-west-2",), None, "g5.xlarge")


def test_data_of_a_mode_replaces_what_has_the_same_target(read: Read, folder: Path) -> None:
    """Small data for a quick mode, at the place where the command looks."""
    for name in ("full", "small", "extra"):
        (folder / name).mkdir()
    text = "data: {in: full, more: extra}\nmodes: {fast: {data: [{source: small, target: in}]}}"
    job = read(text, mode="fast")
    assert job.data == (
        DataMount(source=str(folder / "small"), target="in"),
        DataMount(source=str(folder / "extra"), target="more"),
    )


@pytest.mark.parametrize(
    ("run", "bundled"),
    [
        ("python -m trainer digits", True),
        ("python3.11 -u -m trainer", True),
        ("torchrun --nproc-per-node=2 \\\n  -m trainer digits", True),
        ("torchrun --module trainer digits", True),
        ("cd x && exec python -m trainer; echo done", True),
        ("python -m trainer.digits", False),
        ("python -m trainers", False),
        ("python train.py", False),
        ("git commit -m trainer", False),
        ("python x.py; git commit -m trainer", False),
        ("", False),
    ],
)
def test_the_bundled_trainer_is_told_by_the_command(read: Read, folder: Path, run: str, bundled: bool) -> None:
    """It runs as a module; it travels unless the code sent has a `trainer` of its own."""
    text = f"workdir: .\nrun: |\n  {run.replace(chr(10), chr(10) + '  ')}\n"
    assert read(text).bundled_trainer is bundled
    (folder / "trainer").mkdir()
    assert read(text).bundled_trainer is False


def test_data_with_a_link_that_leaves_it_is_refused_with_its_line(refuse: Refuse, folder: Path, tmp_path: Path) -> None:
    """Before anything is contacted: a repository that somebody else wrote may name any file of the laptop's."""
    (folder / "set").mkdir()
    (tmp_path / "id_rsa").write_text("key")
    (folder / "set" / "model.bin").symlink_to(tmp_path / "id_rsa")
    error = refuse("name: x\ndata:\n  in: set")
    assert "kedge.yaml:3: `data.in`" in error.what
    assert f"'model.bin' to '{tmp_path / 'id_rsa'}'" in error.what
    assert "follow_links: true" in error.fix


@pytest.mark.parametrize(
    "text", ["data: [{source: set, target: in, follow_links: %s}]", "data: {in: {source: set, follow_links: %s}}"]
)
def test_links_are_followed_where_the_job_says_so_and_the_plan_shows_where_to(
    read: Read, refuse: Refuse, folder: Path, tmp_path: Path, text: str
) -> None:
    """Also those of folders that links lead to."""
    for name in ("disk", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "disk" / "more").symlink_to("../other/file")
    (folder / "set").mkdir()
    (folder / "set" / "all").symlink_to(tmp_path / "disk")
    (folder / "set" / "here").symlink_to("all/file")
    (folder / "set" / "inside").symlink_to("all")
    mount = read(text % "true").data[0]
    places = (str(tmp_path / "disk"), str(tmp_path / "disk" / "file"), str(tmp_path / "other" / "file"))
    assert mount.follows == places
    assert all(place in describe(SendData(machine_id="m", mount=mount)) for place in places)
    assert "leaves it" in refuse(text % "false").what


def test_many_places_are_shown_as_the_folders_that_they_lie_in(read: Read, folder: Path, tmp_path: Path) -> None:
    """A single one elsewhere isn't hidden among thousands."""
    (tmp_path / "farm").mkdir()
    (folder / "set").mkdir()
    for number in range(100):
        (tmp_path / "farm" / str(number)).touch()
        (folder / "set" / str(number)).symlink_to(tmp_path / "farm" / str(number))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").touch()
    (folder / "set" / "1000").symlink_to(tmp_path / ".ssh" / "id_rsa")
    mount = read("data: {in: {source: set, follow_links: true}}").data[0]
    assert mount.follows == (str(tmp_path / ".ssh"), str(tmp_path / "farm"))


def test_a_source_that_is_a_link_is_resolved_and_shown(read: Read, folder: Path, tmp_path: Path) -> None:
    """The folder that it leads to is what is sent, and the plan says how it came to that."""
    (tmp_path / "secrets").mkdir()
    (folder / "images").symlink_to(tmp_path / "secrets")
    mount = read("data: {in: images}").data[0]
    assert (mount.source, mount.written) == (str(tmp_path / "secrets"), "images")
    assert f"{tmp_path / 'secrets'} (which the link images leads to)" in describe(SendData(machine_id="m", mount=mount))


def test_links_inside_the_data_are_no_matter(read: Read, folder: Path) -> None:
    """By whatever way they lead there."""
    (folder / "set" / "sub").mkdir(parents=True)
    (folder / "set" / "file").touch()
    for name, target in {
        "a": "file",
        "sub/b": "../file",
        "c": "sub/../file",
        "d": str(folder / "set" / "file"),
        "e": "e",
    }.items():
        (folder / "set" / name).symlink_to(target)
    assert read("data: {in: set}").data[0].follows == ()


def test_data_that_is_nested_as_deeply_as_can_be_is_read(read: Read, folder: Path) -> None:
    """What came home from a machine may be so."""
    (folder / "set").mkdir()
    here = os.open(folder / "set", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    assert read("data: {in: set}").data[0].follows == ()
    subprocess.run(["rm", "-r", folder / "set"], check=True)
