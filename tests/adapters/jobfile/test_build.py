"""A valid job file becomes a frozen job."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest

from orchestrator.adapters.jobfile.values.names import NAME_PATTERN, fit_name
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.adapters.providers.digitalocean.site import SPACES
from orchestrator.adapters.store.settings import KEDGE_STORE
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DataMount, Job, Resources
from orchestrator.core.offer import Accelerators
from orchestrator.core.task import Expect, SupervisorKind, SupervisorSpec, Task
from orchestrator.core.values.credentials import is_own_credential

Read = Callable[..., Job]
Refuse = Callable[..., BadRequestError]


def test_every_key_reaches_the_job(read: Read, folder: Path) -> None:
    """The whole file, parsed into the types of core."""
    (folder / "data").mkdir()
    job = read(
        """
        name: train
        workdir: .
        num_nodes: 2
        elastic: 1..2
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
    supervisor = SupervisorSpec(
        kind=SupervisorKind.SCREEN, restarts=5, restart_after=timedelta(minutes=1), grace=timedelta(minutes=2)
    )
    expect = Expect(duration=timedelta(minutes=45), first_step=timedelta(seconds=30))
    assert job == Job(
        name="train",
        path=str(folder / "kedge.yaml"),
        workdir=str(folder),
        num_nodes=2,
        elastic=(1, 2),
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
        tasks=(
            Task(
                run="python train.py",
                outputs=("results", "logs"),
                checkpoints="ckpt",
                supervisor=supervisor,
                expect=expect,
            ),
        ),
        time_limit=timedelta(minutes=90),
        budget_usd=Decimal("0.10"),
        supervisor=supervisor,
        recover=True,
        expect=expect,
    )


def test_an_almost_empty_file_takes_every_default(read: Read, folder: Path) -> None:
    """A key without a value counts as missing; the name is made from the folder's."""
    assert read("run: python train.py\nsetup:\nresources:\n") == Job(
        name="my-project", path=str(folder / "kedge.yaml"), tasks=(Task(run="python train.py"),)
    )


@pytest.mark.parametrize("text", ["My Project", "ÜBER_größe", "...", "x" * 99, "a" + "-" * 40 + "b", ""])
def test_any_name_is_made_to_fit(text: str) -> None:
    """The result is always a valid name for a job."""
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
    """Names become lower case."""
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
def test_infra_may_name_a_provider_a_region_and_a_zone(
    read: Read, written: str, place: tuple[str | None, str | None, str | None]
) -> None:
    """`*` leaves a part open."""
    resources = read(f"resources: {{infra: {written}}}").resources
    region = ",".join(resources.regions) or None
    assert (resources.provider, region, resources.zone) == place


@pytest.mark.parametrize(
    ("written", "spot"), [("true", True), ("yes", True), ("on", True), ("no", False), ("False", False)]
)
def test_old_and_new_yaml_booleans_are_understood(read: Read, written: str, spot: bool) -> None:
    """`yes` and `on` are booleans in the YAML that SkyPilot reads."""
    assert read(f"resources: {{use_spot: {written}}}").resources.use_spot is spot


def test_a_variable_without_a_value_takes_the_laptops_value(read: Read) -> None:
    """As in SkyPilot. The job holds only its name."""
    job = read("envs: {USER_NAME: null, B: x}", environ={"USER_NAME": "ada"})
    assert (job.envs, job.inherited, job.from_shell) == ((("B", "x"),), ("USER_NAME",), ("USER_NAME",))
    assert "ada" not in repr(job)


@pytest.mark.parametrize("text", ["workdir: $V", "data: {in: 'https://example.org/?q=${V}'}", "data: {'in/$V': v2}"])
def test_an_inherited_value_is_used_in_no_path_and_no_address(
    read: Read, refuse: Refuse, folder: Path, text: str
) -> None:
    """Otherwise a stranger's job file could send a token to a server, and kedge would record it in plain text."""
    (folder / "v2").mkdir()
    error = refuse(f"envs: {{V: null}}\n{text}", environ={"V": "v2"})
    assert "$V can't be used here" in error.what
    assert "v2" not in error.what + error.fix
    assert read(f"envs: {{V: null}}\n{text}", env=("V=v2",)).inherited == ()


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AMD_DEVCLOUD_TOKEN"),
        *("DIGITALOCEAN_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN", "SPACES_SECRET_ACCESS_KEY", "LAMBDA_API_KEY"),
    ],
)
def test_a_job_gets_kedges_own_credentials_only_if_the_user_allows_it(read: Read, refuse: Refuse, name: str) -> None:
    """Listed as a secret or inherited, in the job or in a mode. A value that the file itself sets is no credential."""
    environ = {name: "hunter2"}
    for text in (f"secrets: [{name}]", f"envs: {{{name}: null}}"):
        for whole, mode in ((text, None), (f"modes: {{m: {{{text}}}}}", "m")):
            error = refuse(whole, mode=mode, environ=environ)
            assert f"--allow-secret {name}" in error.fix
            assert read(whole, mode=mode, environ=environ, allow_secret=(name,)).from_shell == (name,)
            refuse(whole, mode=mode, environ=environ, allow_secret=("OTHER",))
    assert read(f"envs: {{{name}: us-east-1}}").envs == ((name, "us-east-1"),)


def test_every_credential_that_kedge_reads_is_recognized() -> None:
    """Compares with the names in the registry and the providers, so that a new variable can't be forgotten."""
    names = {SPACES.access_key, SPACES.secret_key, KEDGE_STORE.access_key, KEDGE_STORE.secret_key}
    names |= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
    for entry in PROVIDERS.values():
        names.update(cast("tuple[str, ...]", entry.options.get("token_names", ())))
        names.update(filter(None, (str(entry.options.get("delete_token_name", "")),)))
    assert len(names) == 12
    assert [name for name in names if not is_own_credential(name)] == []


def test_a_job_may_choose_its_torch(read: Read) -> None:
    """`KEDGE_TORCH_WHEEL` is the only variable of kedge's that a job may set."""
    assert read("envs: {KEDGE_TORCH_WHEEL: none}").envs == (("KEDGE_TORCH_WHEEL", "none"),)


def test_only_the_names_of_secrets_are_kept(read: Read) -> None:
    """A list of names means the same as SkyPilot's mapping to null or to an empty text."""
    environ = {"A": "hunter2", "B": "hunter3"}
    jobs = [read(text, environ=environ) for text in ("secrets: [A, B]", "secrets: {A: null, B: ''}")]
    assert jobs[0] == jobs[1]
    assert jobs[0].secrets == ("A", "B")
    assert "hunter" not in repr(jobs)


def test_the_jobs_own_variables_are_expanded_in_its_paths(read: Read, folder: Path) -> None:
    """`$NAME` and `${NAME}`; other variables stay as they are."""
    (folder / "v2").mkdir()
    job = read("envs: {V: v2}\nworkdir: ./$V\nfile_mounts: {'in/${V}/$OTHER': '${V}'}")
    assert job.workdir == str(folder / "v2")
    assert job.data == (DataMount(source=str(folder / "v2"), target="in/v2/$OTHER"),)


def test_a_flags_value_is_expanded_in_paths_instead_of_the_files(read: Read, refuse: Refuse, folder: Path) -> None:
    """As in `check` and in `run`: else another data set would be sent than the one that the command is told of."""
    text = "envs: {V: v2}\nworkdir: ./$V\ndata: {'in/$W': '${V}'}\nmodes: {m: {arguments: [V]}}"
    for name in ("v2", "v3", "v4"):
        (folder / name).mkdir()
    job = read(text, mode="m v4", env=("V=v3", "W=w"))
    assert job.workdir == str(folder / "v3")
    assert job.data == (DataMount(source=str(folder / "v3"), target="in/w"),)
    assert "`workdir`: './v9' is not there" in refuse(text, env=("V=v9",)).what
    assert read(text, env=("V", "V=v3"), environ={"V": "v2"}).workdir == str(folder / "v3")


@pytest.mark.parametrize("text", ["workdir: $V", "data: {in: 'https://example.org/?q=${V}'}"])
def test_a_flag_that_takes_a_value_from_the_shell_makes_a_secret_that_no_path_has(
    refuse: Refuse, folder: Path, text: str
) -> None:
    """Even if the file has a value: the command would get the shell's."""
    (folder / "v2").mkdir()
    error = refuse(f"envs: {{V: v2}}\n{text}", env=("V",), environ={"V": "hunter2"})
    assert "$V can't be used here" in error.what
    assert "hunter2" not in f"{error.what}{error.why}{error.fix}"


@pytest.mark.parametrize(
    ("run", "bundled"),
    [
        ("python -m trainer digits", True),
        ("python3.11 -u -m trainer", True),
        ("torchrun --nproc-per-node=2 \\\n  -m trainer digits", True),
        ("torchrun --module trainer digits", True),
        ("cd x && exec python -m trainer; echo done", True),
        ("python -m kedge_trainer digits", True),
        ("torchrun -m kedge_trainer digits", True),
        ("python -m trainer.digits", False),
        ("python -m my_kedge_trainer", False),
        ("python -m trainers", False),
        ("python train.py", False),
        ("git commit -m trainer", False),
        ("python x.py; git commit -m trainer", False),
        ("", False),
    ],
)
def test_the_bundled_trainer_is_recognized_by_the_command(read: Read, folder: Path, run: str, bundled: bool) -> None:
    """It runs as a module; `-m trainer` is the code's own one if it has one, `-m kedge_trainer` never is."""
    text = f"workdir: .\nrun: |\n  {run.replace(chr(10), chr(10) + '  ')}\n"
    assert read(text).bundled_trainer is bundled
    (folder / "trainer").mkdir()
    assert read(text).bundled_trainer is ("kedge_trainer" in run and bundled)
