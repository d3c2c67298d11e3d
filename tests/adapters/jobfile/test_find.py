"""Which job file a command uses, and the list of job files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.jobfile.lookup.find import find_job
from orchestrator.adapters.jobfile.lookup.listing import list_jobs
from orchestrator.core.errors import BadRequestError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a `kedge.yaml`, another job beside it, one in a folder below, and other YAML."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "kedge.yaml").write_text("# The main job.\nrun: x\nmodes: {fast: {}, full: {}}\n")
    (tmp_path / "sweep.yml").write_text("resources: {infra: local}\nrun: x\n")
    (tmp_path / "deep" / "er" / "local.yaml").write_text("run: x\n")
    (tmp_path / ".hooks.yaml").write_text("run: x\n")
    (tmp_path / "compose.yaml").write_text("services: {db: {image: postgres}}\n")
    return tmp_path


def test_without_a_name_the_nearest_kedge_yaml_upward_is_used(project: Path) -> None:
    """From any folder below it."""
    assert find_job(project / "deep" / "er", None) == project / "kedge.yaml"


def test_without_a_name_and_a_file_there_is_no_job(tmp_path: Path) -> None:
    """The caller then opens a plain machine."""
    assert find_job(tmp_path, None) is None


@pytest.mark.parametrize("kind", ["pipe", "folder", "itself", "nothing"])
def test_a_kedge_yaml_that_is_no_file_is_refused(project: Path, kind: str) -> None:
    """Otherwise kedge would rent a machine for a job further up, or for none."""
    place = project / "deep" / "kedge.yaml"
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "itself":
            place.symlink_to("kedge.yaml")
        case _:
            place.symlink_to("nowhere")
    with pytest.raises(BadRequestError, match="not a regular file"):
        find_job(project / "deep" / "er", None)


@pytest.mark.parametrize("name", [None, "sweep"])
def test_a_file_that_others_could_have_written_has_to_be_named_by_its_path(project: Path, name: str | None) -> None:
    """In a folder like /tmp, where nobody can replace another user's file, the file's own mode counts."""
    found = find_job(project / "deep", name)
    assert found is not None
    for path, mode, is_taken in (
        (found, 0o666, False),
        (found, 0o644, True),
        (project, 0o777, False),
        (project, 0o1777, True),
        (project, 0o755, True),
    ):
        path.chmod(mode)
        if is_taken:
            assert find_job(project / "deep", name) == found
        else:
            with pytest.raises(BadRequestError, match="others may write"):
                find_job(project / "deep", name)
        assert find_job(project / "deep", str(found)) == found


def test_a_job_name_is_looked_up_beside_kedge_yaml_then_here_then_in_kedge(project: Path) -> None:
    """The first match is used."""
    below = project / "deep" / "er"
    assert find_job(below, "sweep") == project / "sweep.yml"
    assert find_job(below, "local") == below / "local.yaml"
    assert find_job(below, "digits") == resource("infra", "jobs", "digits.yaml")
    (project / "digits.yaml").write_text("run: mine\n")
    assert find_job(below, "digits") == project / "digits.yaml"


def test_a_path_is_taken_as_it_is(project: Path, tmp_path: Path) -> None:
    """Relative to the current folder, or absolute."""
    assert find_job(project / "deep", "../sweep.yml") == project / "deep" / ".." / "sweep.yml"
    assert find_job(project, "sweep.yml") == project / "sweep.yml"
    assert find_job(Path("/"), str(project / "sweep.yml")) == project / "sweep.yml"


@pytest.mark.parametrize(("name", "meant"), [("digts", "digits"), ("swep", "sweep"), ("deep/swep.yaml", "sweep")])
def test_an_unknown_job_name_suggests_the_nearest(project: Path, name: str, meant: str) -> None:
    """The fix names what was probably meant."""
    with pytest.raises(BadRequestError) as caught:
        find_job(project, name)
    assert caught.value.fix == f"did you mean {meant}?"


def test_the_list_has_jobs_and_no_other_yaml(project: Path) -> None:
    """Their names are what `--job` takes."""
    jobs = {job.name: job for job in list_jobs(project)}
    bundled = sorted(path.stem for path in resource("infra", "jobs").glob("*.yaml"))
    assert list(jobs) == ["kedge", "sweep", *bundled]
    assert jobs["kedge"].description == "The main job."
    assert jobs["kedge"].modes == ("fast", "full")
    assert jobs["digits"].modes == ("validate", "full")
    assert all(find_job(project, name) == job.path for name, job in jobs.items())


def test_a_damaged_file_does_not_hide_the_others(project: Path) -> None:
    """It is listed with its problem."""
    (project / "kedge.yaml").write_text("run: [\n")
    (project / "sweep.yml").write_text("run: x\nnonsense: y\n")
    jobs = {job.name: job for job in list_jobs(project)}
    assert "this isn't YAML" in jobs["kedge"].problem
    assert "`nonsense`" in jobs["sweep"].problem
    assert not jobs["digits"].problem


def test_a_huge_file_beside_the_jobs_is_not_read_whole(project: Path) -> None:
    """A sparse file of one TiB is no job, and isn't read into memory."""
    with (project / "huge.yaml").open("wb") as huge:
        huge.truncate(1 << 40)
    assert "huge" not in {job.name for job in list_jobs(project)}


def test_looking_for_a_job_loads_nothing_heavy() -> None:
    """Quick commands look for the job file too; they can't wait for pydantic."""
    code = (
        "import sys, orchestrator.adapters.jobfile.lookup.find as f; from pathlib import Path\n"
        "f.find_job(Path('/'), None);"
        "print(sorted({'pydantic', 'yaml', 'jinja2'} & set(sys.modules)))"
    )
    root = resource("trainer").parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
