"""`resume` in a job file: the command that continues an interrupted run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job

Read = Callable[..., Job]
Refuse = Callable[..., BadRequestError]
PAGE = Path(__file__).parents[3] / "docs" / "your-script.md"


@pytest.mark.parametrize(
    ("resume", "later"),
    [
        ("python train.py --init_from=resume", "python train.py --init_from=resume"),
        ("{command: python other.py}", "python other.py"),
        ("{args: --resume last.pt}", "python train.py --epochs 3 --resume last.pt"),
        ('{args: "--resume\\n  last.pt\\n"}', "python train.py --epochs 3 --resume   last.pt"),
    ],
)
def test_resume_is_a_command_or_more_arguments_for_run(read: Read, resume: str, later: str) -> None:
    """Arguments are appended to `run`, on its last line."""
    job = read(f"run: |\n  python train.py --epochs 3\nresume: {resume}\n")
    assert job.tasks[0].later_run == later


@pytest.mark.parametrize("run", ["cd src && python train.py --tags 'a|b'", 'python train.py --name "one | two" 2>&1'])
def test_arguments_go_to_the_last_program(read: Read, run: str) -> None:
    """A `|` in quotes is no pipe."""
    assert read(f"run: |\n  {run}\nresume: {{args: --go}}\n").tasks[0].later_run == f"{run} --go"


def test_a_job_without_resume_runs_the_same_command(read: Read) -> None:
    """It has no second command."""
    assert read("run: python train.py").tasks[0].later_run == ""


def test_a_mode_with_its_own_run_drops_the_jobs_resume_command(read: Read) -> None:
    """That command belongs to the job's `run`; arguments fit both."""
    modes = "modes: {fast: {run: python fast.py}, slow: {resume: {args: --on}}}"
    assert read(f"run: python train.py\nresume: python train.py --again\n{modes}", mode="fast").tasks[0].later_run == ""
    assert (
        read(f"run: python train.py\nresume: {{args: --go}}\n{modes}", mode="fast").tasks[0].later_run
        == "python fast.py --go"
    )
    assert (
        read(f"run: python train.py\nresume: python again.py\n{modes}", mode="slow").tasks[0].later_run
        == "python train.py --on"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resume: python train.py", "there is no `run`"),
        ("run: python train.py\nresume: {args: --a, command: python b.py}", "both a command and arguments"),
        ("run: python train.py &\nresume: {args: --a}", "can't be appended"),
        ("run: |\n  if true; then\n    python train.py\n  fi\nresume: {args: --a}", "can't be appended"),
        ("run: python train.py 2>&1 | tee train.log\nresume: {args: --a}", "can't be appended"),
        ("run: |\n  python train.py |\n    tee train.log\nresume: {args: --a}", "can't be appended"),
        ("run: |\n  python train.py \\\n  | tee train.log\nresume: {args: --a}", "can't be appended"),
        ("run: python train.py || echo failed\nresume: {args: --a}", "can't be appended"),
        ("run: |\n  python - <<'END'\n  print(1)\n  END\nresume: {args: --a}", "can't be appended"),
        ("run: |\n  python train.py # the best\nresume: {args: --a}", "can't be appended"),
        ("run: python train.py | tee log\nresume: sudo python train.py", "sudo"),
        ("run: python train.py\nresume: {arg: --a}", "args"),
        ("run: python train.py\nresume: [--a]", "resume"),
    ],
)
def test_an_impossible_resume_is_refused(refuse: Refuse, text: str, words: str) -> None:
    """The error names the key, and says what to write instead."""
    refused = refuse(text)
    assert "resume" in str(refused)
    assert words in str(refused)


def test_every_example_of_the_page_is_a_job(read: Read, folder: Path) -> None:
    """The test makes the folders that the examples send."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 9
    for block in blocks:
        for source in yaml.safe_load(block).get("data", {}).values():
            (folder / source).mkdir(parents=True, exist_ok=True)
        assert read(block, environ={"WANDB_API_KEY": "k"}).tasks
