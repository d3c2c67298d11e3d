"""What `setup` depends on, as its text tells: files, variables, and the code's folder itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.code.base_release import stamp
from orchestrator.agent.code.releases import write_record
from orchestrator.agent.python.code_ties import find_in_setup
from orchestrator.agent.python.setup_inputs import find_inputs, find_variables, texts_of

CODE = {
    "README.md": "# about",
    "train.py": "import os",
    "pyproject.toml": 'readme = "README.md"',
    "reqs/dev.txt": "-c pins.txt\n-r more.txt\n-e ../lib\n",
    "reqs/pins.txt": "toy==1",
    "reqs/more.txt": "torch==2.1\n# train.py\n",
    "scripts/prepare.sh": 'pip install "$EXTRA" -r other.txt',
    "scripts/other.txt": "",
    "tools/load.py": "os.environ['TOOL_HOME']",
    "lib/pyproject.toml": "",
    "environment-gpu.yml": "dependencies: [{pip: [-r base.in]}]",
    "base.in": "",
    "uv.lock": "EPOCHS",
}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Code as it was received; `setup` has added a file, and kedge a link to data."""
    folder = tmp_path / "releases" / "abc"
    for path, text in CODE.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    write_record(folder, {"hash": "abc", "files": {path: stamp(f"{folder}/{path}") for path in CODE}})
    (folder / "requirements.txt").write_text("written by setup")
    (tmp_path / "wheels").mkdir()
    (folder / "wheels").symlink_to(tmp_path / "wheels")
    (folder / "link.sh").symlink_to("scripts/prepare.sh")
    return folder


USUAL = {"pyproject.toml", "uv.lock", "environment-gpu.yml", "base.in"}


@pytest.mark.parametrize(
    ("setup", "more"),
    [
        ("pip install toy", set()),
        ("pip install -r reqs/dev.txt", {"reqs/dev.txt", "reqs/pins.txt", "reqs/more.txt", "train.py"}),
        ("cd reqs && pip install -r './more.txt'", {"reqs/more.txt", "train.py"}),
        ("bash scripts/prepare.sh", {"scripts/prepare.sh", "scripts/other.txt"}),
        ("./link.sh", {"link.sh", "scripts/other.txt"}),
        ("pip install -r reqs/m*.txt", {"reqs/more.txt", "train.py"}),
        ("python -m tools.load --all", {"tools/load.py"}),
        ("rm -rf /tmp/* && ls *", set()),
        ("cat requirements.txt wheels", set()),
    ],
)
def test_the_usual_files_and_those_that_the_text_names_are_inputs(release: Path, setup: str, more: set[str]) -> None:
    """And those that scripts and lists of requirements name; a comment's words count, which does no harm."""
    assert set(find_inputs(release, setup)) == USUAL | more


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["train.py"], {"train.py"}),
        (["reqs/*.txt"], {"reqs/dev.txt", "reqs/pins.txt", "reqs/more.txt", "train.py"}),
        (["**/*.sh"], {"link.sh", "scripts/prepare.sh", "scripts/other.txt"}),
        (["lib/", "./tools"], {"lib/pyproject.toml", "tools/load.py"}),
        (["**"], {*CODE, "link.sh"}),
        (["."], {*CODE, "link.sh"}),
        (["no-such-file"], set()),
    ],
)
def test_setup_inputs_are_globs_in_which_a_folder_means_all_below_it(
    release: Path, patterns: list[str], expected: set[str]
) -> None:
    """They replace what the text names."""
    assert set(find_inputs(release, "cat train.py README.md", patterns)) == expected


def test_variables_that_nothing_names_and_no_installer_reads_do_not_count(release: Path) -> None:
    """A lock file names none; credentials count only if they are named."""
    given = ["EPOCHS", "LR", "FLAVOUR", "EXTRA", "TOOL_HOME", "PIP_INDEX_URL", "UV_TOKEN", "HF_HOME", "HF_TOKEN", "CC"]
    setup = "bash scripts/prepare.sh ${FLAVOUR}; python -m tools.load"
    used = find_variables(release, setup, find_inputs(release, setup), given)
    assert used == ("CC", "EXTRA", "FLAVOUR", "HF_HOME", "PIP_INDEX_URL", "TOOL_HOME")
    assert find_variables(release, "echo $HF_TOKEN", (), given) == ("CC", "HF_HOME", "HF_TOKEN", "PIP_INDEX_URL")


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("pip install -r reqs/more.txt", ""),
        ("pip install --find-links wheels toy", ""),
        ("pip install --find-links ./wheels toy", ""),
        ("apt-get install -y ninja && find . -name x", ""),
        (". /opt/venv/bin/activate; pip install toy # .", ""),
        ("true\npip install .", "line 2 of setup installs"),
        ("pip install '.[dev]'", "line 1 of setup installs"),
        ("cd lib && pip install -e.", "line 1 of setup installs"),
        ("uv pip install --editable=./lib", "line 1 of setup installs"),
        ("conda develop lib/", "line 1 of setup installs"),
        ("pip install -r reqs/dev.txt", "reqs/dev.txt installs"),
        ('echo "$PWD" >~/here', "line 1 of setup uses the path"),
        ("ln -s $(pwd)/lib ~/lib", "line 1 of setup uses the path"),
        ("echo 'unbalanced; pip install .", "line 1 of setup installs"),
    ],
)
def test_a_text_that_installs_the_code_or_uses_its_path_is_tied_to_it(release: Path, setup: str, says: str) -> None:
    """The log names the line, but not its words, because a line may have secrets."""
    found = find_in_setup(release, setup, texts_of(release, find_inputs(release, setup)))
    assert found.startswith(says) if says else found == ""
