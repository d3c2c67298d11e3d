"""docs/your-script.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job
from orchestrator.adapters.providers import PROVIDERS
from tests.support.laptop import Laptop

PAGE = (Path(__file__).parents[2] / "docs" / "your-script.md").read_text()
VARIABLES = set(re.findall(r"^\| `(KEDGE_\w+)` \|", PAGE, re.MULTILINE))
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_is_a_job_file(number: int, tmp_path: Path) -> None:
    """The reader takes it as it is, in a folder where its data is."""
    (tmp_path / "data" / "shakespeare_char").mkdir(parents=True)
    path = tmp_path / "kedge.yaml"
    path.write_text(EXAMPLES[number])
    environ = {"WANDB_API_KEY": "k"}
    job = read_job(path, mode=None, overrides=Overrides(), environ=environ, providers=tuple(PROVIDERS))
    assert job.tasks[0].run
    assert job.tasks[0].checkpoints


def test_the_table_of_variables_is_what_a_command_finds(laptop: Laptop) -> None:
    """None is missing, and none is told that isn't there."""
    laptop.write_job("{name: shows, run: env, supervisor: {kind: nohup, restarts: 0}}")
    said = laptop.kedge("launch", "--provider", "local", "--yes")
    found = set(re.findall(r"\b(KEDGE_\w+)=", said))
    # kedge finds the processes of a run, and of a machine at home, by these.
    assert found - {"KEDGE_AGENT_MARK", "KEDGE_MACHINE", "KEDGE_MACHINE_ROOT"} == VARIABLES
