"""docs/workflows.md and its pages: each trap names a test that is there, and each command is one that kedge has."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from orchestrator.cli.flag_table import flags_of
from orchestrator.cli.help import summaries
from orchestrator.cli.program import namespace
from tests.golden.test_security_page import found_in
from trainer.base.overrides import apply_overrides
from trainer.checks import list_checks
from trainer.generators import list_generators
from trainer.recipes import find_recipe
from trainer.recipes._loading import load_recipe

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "workflows.md"
RECIPES = {
    "fresnel": "gaussian",
    "skull-dual": "pcdiff",
    "voxelization": "voxelization",
    "vesuvius": "surface",
    "imagenet": "imagenet",
    "pcdiff-scaling": "pcdiff",
}
"""Each page with its recipe."""
JOBS: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "infra" / "jobs").glob("*.yaml")
}
TRAPS = {"fresnel": 14, "skull-dual": 7, "vesuvius": 7, "imagenet": 13, "pcdiff-scaling": 5}
"""The number of traps that each workflow's own scripts have."""
_NAMED = re.compile(r"`(tests/[\w./-]+\.py)::(\w+)`")
_TRAINER = ("recipes", "check", "generate", "preprocess", "remap", "advise", "find-lr", "find-batch")


def page(name: str) -> str:
    return (ROOT / "docs" / "workflows" / f"{name}.md").read_text()


def traps(section: str) -> list[list[str]]:
    """Return the rows of a section's table of traps: the trap, what kedge does, the tests."""
    lines = [line for line in re.split(r"\n##+ ", section)[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert rows[0] == ["trap", "what kedge does instead", "test"]
    return rows[2:]


def tables() -> Iterator[tuple[str, list[list[str]]]]:
    """Yield each table of traps, those of the index first."""
    for name in TRAPS:
        yield f"traps of {name}", traps(INDEX.read_text().partition(f"\n### Traps of {name}\n")[2])
    for name in RECIPES:
        yield name, traps(page(name).partition("\n## Traps\n")[2])


def commands(name: str) -> Iterator[list[str]]:
    """Yield the commands of a page, from its blocks and from within its lines, each as its words."""
    text = page(name)
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.partition(" #")[0] for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`((?:kedge|python -m trainer) [^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    for line in itertools.chain(lines, inline):
        for command in re.split(r"; | && ", line):
            yield shlex.split(command)


def test_each_workflow_has_its_traps_and_each_trap_its_tests() -> None:
    """A test that is renamed or removed takes its row with it; those for GPUs or accounts have to be asked for."""
    found = dict(tables())
    assert {name: len(found[f"traps of {name}"]) for name in TRAPS} == TRAPS
    for name, rows in found.items():
        for trap, instead, tests in rows:
            named = _NAMED.findall(tests)
            assert trap, name
            assert instead, trap
            assert [f"{path}::{test}" for path, test in named if test not in found_in(path)] == [], trap
            assert [path for path, _ in named if not re.match(r"tests/(live|trainer/gpu)/", path)], trap
            assert re.sub(_NAMED, "", tests).strip(" ,") == "", trap


def test_no_trap_is_told_twice() -> None:
    """The pages have what the index hasn't."""
    told = [row[0] for _, rows in tables() for row in rows]
    assert sorted({trap for trap in told if told.count(trap) > 1}) == []


@pytest.mark.parametrize("name", RECIPES)
def test_each_page_has_ten_lines_the_originals_commands_and_a_picture(name: str) -> None:
    """And the index leads to it."""
    text = page(name)
    assert f"](workflows/{name}.md)" in INDEX.read_text()
    lines = text.partition("\n## With your data\n")[2].partition("```bash\n")[2].partition("```")[0].splitlines()
    assert 8 <= len(lines) <= 11
    assert "\n## The original's commands and ours\n\n| " in text
    pictures = re.findall(r"!\[[^\]]+\]\((\w+\.png)\)", text)
    assert pictures
    for picture in pictures:
        with Image.open(ROOT / "docs" / "workflows" / picture) as image:
            assert min(image.size) >= 240


@pytest.mark.parametrize("name", TRAPS)
def test_each_job_file_names_the_page_and_the_index_its_modes(name: str) -> None:
    """A reader of one finds the other."""
    assert f"docs/workflows/{name}.md" in (ROOT / "infra" / "jobs" / f"{name}.yaml").read_text()
    (row,) = re.findall(rf"^\| \[{name}\].*$", INDEX.read_text(), re.MULTILINE)
    for mode, keys in JOBS[name]["modes"].items():
        assert f"`{' '.join([mode, *keys.get('arguments', [])])}`" in row


@pytest.mark.parametrize("name", RECIPES)
def test_commands_of_kedge_have_its_names_flags_jobs_and_modes(name: str) -> None:
    """In the blocks and in the tables of the pages."""
    known = summaries(namespace)
    own = [words[1:] for words in commands(name) if words[:1] == ["kedge"]]
    assert own
    for command, *words in own:
        assert command in known
        flags = {written for flag in flags_of(command) for written in flag.written}
        assert [word for word in words if word.startswith("-") and word not in flags] == [], command
        given = dict(itertools.pairwise(words))
        job = Path(given.get("--job", "skull-dual" if name == "voxelization" else name)).stem
        chosen = [given["--mode"]] if "--mode" in given else given.get("--modes", "").split(",")
        assert {mode.split()[0] for mode in chosen if mode} <= set(JOBS[job]["modes"])


@pytest.mark.parametrize("name", RECIPES)
def test_variables_and_settings_are_those_of_the_job_and_the_recipe(name: str) -> None:
    """`--env NAME=` is a variable of the job file, `--set KEY=VALUE` a setting of the recipe."""
    job = "skull-dual" if name == "voxelization" else name
    text = (ROOT / "infra" / "jobs" / f"{job}.yaml").read_text()
    assert [each for each in re.findall(r"--env (\w+)=", page(name)) if not re.search(rf"\b{each}\b", text)] == []
    given = re.findall(r"--set ([\w.]+=[^\s`]+)", page(name))
    # It refuses what is no setting, and values that a setting can't have.
    apply_overrides(load_recipe(find_recipe(RECIPES[name])).settings, given)


@pytest.mark.parametrize("name", RECIPES)
def test_commands_of_the_trainer_are_its_own(name: str) -> None:
    """A recipe, or one of its other commands with a name that it knows."""
    for words in commands(name):
        if words[:3] == ["python", "-m", "trainer"]:
            what, *rest = words[3:]
            assert what in (*_TRAINER, RECIPES[name]), words
            assert what != "check" or rest[0] in list_checks()
            assert what != "generate" or rest[0] in list_generators()
