"""What an export writes for each scheduler: scripts without faults, the code that a launch would send, no secrets."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.laptop import Laptop

TARGETS = ("batch", "sagemaker", "slurm")
SECRET = "hf_0123456789abcdefghij"
NASTY = """
name: nasty
workdir: .
resources: {accelerators: "a10g:1", use_spot: true}
secrets: [HF_TOKEN]
envs: {GREETING: "it's `id`; $(id) \\"x\\" \\\\ {{ y }} {% z %}"}
data: {"a dir/it's $x": data}
setup: echo "$GREETING"
run: echo "$GREETING" > "$KEDGE_OUTPUT_DIR/greeting"
resume: {args: --more}
outputs: ["re sults/$y"]
checkpoints: "ck'pt"
budget: $5
"""


@pytest.fixture
def nasty(laptop: Laptop) -> Laptop:
    """A job whose names and values mean something to a shell."""
    laptop.write_job(NASTY)
    (laptop.home / "data").mkdir()
    (laptop.home / ".kedgeignore").write_text("data/\nbig.bin\n")
    (laptop.home / "big.bin").write_bytes(b"0")
    laptop.extra_env["HF_TOKEN"] = SECRET
    return laptop


def export(laptop: Laptop, target: str, *flags: str) -> Path:
    laptop.kedge("export", "--to", target, *flags)
    return laptop.home / "export" / f"nasty-{target}"


@pytest.mark.parametrize("target", TARGETS)
def test_shellcheck_has_nothing_to_say(nasty: Laptop, target: str) -> None:
    """Of each script that kedge wrote. SC2016 is about `$` in quoted values, which means nothing there."""
    folder = export(nasty, target)
    own = ("run.sh", "resume.sh", "setup.sh")
    scripts = [path for path in folder.iterdir() if path.suffix in (".sh", ".sbatch") and path.name not in own]
    assert len(scripts) >= 3
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "--exclude=SC2016", *map(str, scripts)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_no_secrets_value_is_written_or_printed(nasty: Laptop, target: str) -> None:
    """Nor needed: an export works in a shell without it."""
    said = nasty.kedge("export", "--to", target)
    files = [path for path in (nasty.home / "export").rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in said + nasty.errors
    del nasty.extra_env["HF_TOKEN"]
    nasty.kedge("export", "--to", target, "--force")


@pytest.mark.parametrize("target", TARGETS)
def test_the_code_is_what_a_launch_sends(nasty: Laptop, target: str) -> None:
    """Without ignored files, and without an earlier export, which is in the same folder."""
    export(nasty, target)
    folder = export(nasty, target, "--force")
    with tarfile.open(folder / "code.tar.gz") as tar:
        names = tar.getnames()
    assert {"kedge.yaml", "train.py"} <= set(names)
    assert not [name for name in names if name.startswith(("export", "data", "big.bin"))]


@pytest.mark.parametrize("target", TARGETS)
def test_files_are_never_replaced_unasked(nasty: Laptop, target: str) -> None:
    """With --force they are, and what the user has put there stays."""
    folder = export(nasty, target)
    (folder / "README.md").write_text("mine")
    (folder / "site.sh").write_text("module load cuda")
    nasty.kedge("export", "--to", target, code=2)
    assert "exists, and isn't empty" in nasty.errors
    assert (folder / "README.md").read_text() == "mine"
    export(nasty, target, "--force")
    assert (folder / "README.md").read_text() != "mine"
    assert (folder / "site.sh").read_text() == "module load cuda"


@pytest.mark.parametrize("target", ["batch", "sagemaker"])
def test_values_that_were_filled_in_stay(nasty: Laptop, target: str) -> None:
    """With --force, too. If a variable is missing, the new file is written, and the old one is beside it."""
    values = export(nasty, target) / "values.sh"
    filled = values.read_text().replace("IMAGE=${IMAGE:-}", "IMAGE=me/image")
    values.write_text(filled)
    export(nasty, target, "--force")
    assert values.read_text() == filled
    values.write_text("IMAGE=me/image\n")
    export(nasty, target, "--force")
    assert "IMAGE=${IMAGE:-}" in values.read_text()
    assert values.with_name("values.sh.old").read_text() == "IMAGE=me/image\n"


@pytest.mark.parametrize("target", TARGETS)
def test_what_an_export_no_longer_has_is_removed(nasty: Laptop, target: str) -> None:
    """A `setup.sh` of an earlier one would still run. What it didn't write, and other paths, stay."""
    folder = export(nasty, target)
    (folder / "site.sh").write_text("module load cuda")
    assert {"setup.sh", "resume.sh", "code.tar.gz"} <= {path.name for path in folder.iterdir()}
    with (folder / ".kedge-export").open("a") as listed:
        listed.write(f"../../train.py\n{nasty.home}/train.py\n.\n\n")
    nasty.write_job("name: nasty\nresources: {accelerators: a10g}\ntasks: {only: {run: sleep 1}}\n")
    export(nasty, target, "--force")
    names = {path.name for path in folder.iterdir()}
    assert not names & {"setup.sh", "resume.sh", "run.sh", "code.tar.gz"}
    assert {"only.run.sh", "site.sh"} <= names
    assert (nasty.home / "train.py").exists()


@pytest.mark.parametrize("target", TARGETS)
def test_data_to_download_are_named_as_their_server_knows_them(laptop: Laptop, target: str) -> None:
    """What kedge's machines do besides is said: unpack, and verify."""
    digest = "0a" * 32
    laptop.write_job(
        f"""
        name: fetching
        resources: {{accelerators: a10g}}
        run: sleep 1
        data:
          plain: https://example.org/a.bin
          packed: https://example.org/b.tgz#sha256={digest}&unpack
          scrolls: kaggle://competitions/scrolls
        """
    )
    said = " ".join(laptop.kedge("export", "--to", target).split())
    assert "Download https://example.org/a.bin to " in said
    assert f"Download https://example.org/b.tgz, whose SHA-256 is {digest}, and unpack it into " in said
    assert "Download kaggle://competitions/scrolls and unpack it into " in said


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_not_carried_over_is_printed_and_written(nasty: Laptop, target: str) -> None:
    """The same sentences; and how to submit."""
    said = nasty.kedge("export", "--to", target)
    readme = (nasty.home / "export" / f"nasty-{target}" / "README.md").read_text()
    lost = [line.removeprefix("! ") for line in said.splitlines() if line.startswith("! ")]
    topics = [sentence.partition(":")[0] for sentence in lost]
    assert {"deadline", "budget", "grace", "recover", "checkpoints", "machine", "check", "left_behind"} <= set(topics)
    assert "secrets (HF_TOKEN)" in topics
    assert "data (a dir/it's $x)" in topics
    assert all(f"- {sentence}\n" in readme for sentence in lost)
    assert "./submit.sh" in said
    assert "./submit.sh" in readme


@pytest.mark.parametrize("target", TARGETS)
def test_the_checks_of_the_data_are_the_first_steps(nasty: Laptop, target: str) -> None:
    """With the values of the variables, and in the folder that they are for; no scheduler runs them."""
    nasty.write_job(f"{NASTY}check: ['echo $SIZE >&1.txt', test -e 'a dir']\n".replace("envs: {", "envs: {SIZE: 8, "))
    said = nasty.kedge("export", "--to", target)
    assert "! check: the scheduler doesn't run it" in said
    readme = (nasty.home / "export" / f"nasty-{target}" / "README.md").read_text()
    for command in ("echo 8 '>&1.txt'", "test -e 'a dir'"):
        assert f"    (cd {nasty.home} && {command})\n" in readme
        assert f"(cd {nasty.home} && {command})" in said
    assert readme.index("(cd") < readme.index("./submit.sh")


def test_a_command_runs_where_names_need_quotes(nasty: Laptop, tmp_path: Path) -> None:
    """Its variables, data, outputs and checkpoints, as they were written."""
    folder = export(nasty, "slurm")
    (folder / "data" / "a dir").mkdir(parents=True)
    (folder / "data" / "a dir" / "it's $x").write_text("data")
    env = {
        **{"PATH": os.environ["PATH"], "VIRTUAL_ENV": "/usr", "HF_TOKEN": SECRET, "MASTER_ADDR": "127.0.0.1"},
        **{"KEDGE_RUN_ID": "r", "KEDGE_ROOT": f"{tmp_path}/r", "KEDGE_WORK": f"{tmp_path}/w"},
        **{"KEDGE_DATA": str(folder / "data"), "KEDGE_DEADLINE": "9999999999", "KEDGE_PORT": "29500"},
        **{"KEDGE_NODE_RANK": "0", "KEDGE_NUM_NODES": "1"},
    }
    done = subprocess.run(
        ["bash", str(folder / "start.sh")], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    greeting = """it's `id`; $(id) "x" \\ {{ y }} {% z %}"""
    assert (tmp_path / "r" / "output" / "greeting").read_text() == f"{greeting}\n"
    assert greeting in done.stdout
    code = tmp_path / "w" / "code"
    assert (code / "a dir" / "it's $x").read_text() == "data"
    assert (code / "re sults" / "$y").resolve() == tmp_path / "r" / "output" / "re sults" / "$y"
    assert (code / "ck'pt").resolve() == tmp_path / "r" / "checkpoints"


def test_missing_data_ends_a_job_before_setup(nasty: Laptop, tmp_path: Path) -> None:
    """With the place where it has to be."""
    folder = export(nasty, "slurm")
    names = ("KEDGE_RUN_ID", "KEDGE_PORT", "KEDGE_NODE_RANK", "KEDGE_NUM_NODES", "MASTER_ADDR", "HF_TOKEN")
    env = dict.fromkeys(names, "0") | {
        **{"PATH": os.environ["PATH"], "KEDGE_ROOT": f"{tmp_path}/r", "KEDGE_WORK": f"{tmp_path}/w"},
        **{"KEDGE_DATA": "/nowhere", "KEDGE_DEADLINE": "9999999999"},
    }
    done = subprocess.run(
        ["bash", str(folder / "start.sh")], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "put it at /nowhere/a dir/it's $x" in done.stderr
    assert "running setup" not in done.stdout


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "--to is missing"),
        (("--to", "kubernetes"), "kedge can't export to 'kubernetes'"),
        (("--to", "slurm", "--mode", "full"), "has no mode 'full'"),
        (("--to", "slurm", "--job", "nothing"), "nothing"),
        (("--to", "slurm", "--output", "train.py"), "is not a folder"),
    ],
)
def test_bad_input_ends_before_anything_is_written(nasty: Laptop, flags: tuple[str, ...], says: str) -> None:
    """With exit code 2."""
    nasty.kedge("export", *flags, code=2)
    assert says in nasty.errors
    assert not (nasty.home / "export").exists()


def test_scripts_may_be_run_and_read_by_a_containers_user(nasty: Laptop) -> None:
    """Who is another one; the umask of kedge doesn't matter."""
    folder = export(nasty, "batch")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes["start.sh"] == modes["submit.sh"] == modes["run.sh"] == 0o755
    assert modes["code.tar.gz"] == modes["kedge-agent.zip"] == modes["Dockerfile"] == 0o644


def test_the_newest_complete_checkpoint_is_found_as_on_kedges_machines(nasty: Laptop, tmp_path: Path) -> None:
    """Without any package: the agent comes along. A newer one that was cut off, and unfinished ones, don't count."""
    program = export(nasty, "slurm") / "kedge-agent.zip"
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    assert _newest(program, folder) == ""
    (folder / "step-10.pkl").write_bytes(pickle.dumps({"step": 10}))
    (folder / "step-20.pkl").write_bytes(pickle.dumps({"step": 20, "model": bytes(1000)})[:500])
    (folder / "step-30.tmp").write_bytes(b"x")
    assert _newest(program, folder) == f"{folder}/step-10.pkl\n"


def _newest(program: Path, folder: Path) -> str:
    argv = [sys.executable, "-IS", str(program), "newest", "--folder", str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
