"""`kedge selftest` on this computer: a run's whole life, interrupted at any point, leaves nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from typing import IO, Any

import pytest

from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.app.selftest.report import redact
from orchestrator.core.ledger import RunStage
from tests.support.json_schemas import require_documented
from tests.support.laptop import Laptop

LIFE = [
    *("permissions", "offer", "creation", "boot", "code", "data", "start", "SSH with pinned keys", "deadline guard"),
    *("code on the machine", "first steps", "stop", "data", "start", "resume", "notice"),
    *("training", "results", "teardown", "right results", "store", "sweep"),
]


@pytest.fixture
def laptop(laptop: Laptop) -> Laptop:
    """A laptop whose self-test takes seconds."""
    laptop.extra_env["KEDGE_SELFTEST_SECONDS"] = "2"
    return laptop


def read_to(stream: IO[str], words: str) -> None:
    while not (line := stream.readline()).startswith(words):
        assert line


def read_report(laptop: Laptop) -> dict[str, Any]:
    report = dict(json.loads((laptop.home / "kedge-selftest.json").read_text()))
    require_documented("selftest", report)
    return report


def test_a_selftest_goes_through_a_whole_life_and_leaves_nothing(laptop: Laptop) -> None:
    """Every check is ok, printed and written to the report; no process, machine or folder stays."""
    laptop.extra_env["MY_API_TOKEN"] = "selftest-1122"
    laptop.kedge("selftest", code=2)
    assert "--yes" in laptop.errors
    said = laptop.kedge("selftest", "--yes")
    assert re.search(r"ok  sweep +\d+\.\d s  nothing of it is left", said)
    report = read_report(laptop)
    assert [line["check"] for line in report["checks"]] == LIFE
    assert report["passed"]
    assert laptop.processes() == []
    assert list((laptop.state / "machines").iterdir()) == []
    assert not list(laptop.state.glob("store/*"))
    assert not (laptop.home / "kedge-results").exists()
    assert [record.stage for record in laptop.ledger().runs()] == [RunStage.ENDED]


def test_ctrl_c_leaves_nothing(laptop: Laptop) -> None:
    """The machine is ended and the account swept before the command exits; the report says where it stopped."""
    test = laptop.start("selftest", "--yes")
    assert test.stdout is not None
    read_to(test.stdout, "ok  creation")
    test.send_signal(signal.SIGINT)
    test.communicate(timeout=240)
    assert test.returncode == 130
    checks = {line["check"]: line for line in read_report(laptop)["checks"]}
    assert checks["sweep"]["found"] == "nothing of it is left"
    assert not read_report(laptop)["passed"]
    assert laptop.processes() == []


def test_a_second_interrupt_reports_what_may_bill(laptop: Laptop) -> None:
    """The user must not believe that all is well: exit code 5, and the commands that end the machine."""
    test = laptop.start("selftest", "--yes")
    assert test.stdout is not None
    read_to(test.stdout, "ok  creation")
    (folder,) = (laptop.state / "machines").iterdir()
    init = MachineFolder(folder).init()
    assert init is not None
    # Its end is waited for until the second interrupt has come.
    os.kill(init.pid, signal.SIGSTOP)
    test.send_signal(signal.SIGINT)
    read_to(test.stdout, "Ending the machine")
    test.send_signal(signal.SIGINT)
    _, errors = test.communicate(timeout=240)
    os.kill(init.pid, signal.SIGCONT)
    assert test.returncode == 5, errors
    (record,) = laptop.ledger().runs()
    assert f"kedge teardown {record.run_id}" in errors
    laptop.kedge("teardown", record.run_id, "--yes", "--no-fetch")


def test_a_closed_pipe_does_not_keep_the_machine(laptop: Laptop) -> None:
    """As in `kedge selftest | head`: the remaining output is dropped, and everything is ended."""
    test = laptop.start("selftest", "--yes")
    assert test.stdout is not None
    read_to(test.stdout, "ok  creation")
    test.stdout.close()
    assert test.wait(timeout=240) in (0, 1, 141)
    assert laptop.processes() == []
    assert [record.stage for record in laptop.ledger().runs()] == [RunStage.ENDED]


def test_an_unwritable_report_is_refused_before_anything_is_created(laptop: Laptop) -> None:
    """If writing failed at the end, the test's findings would be lost."""
    (laptop.home / "kedge-selftest.json").mkdir()
    laptop.kedge("selftest", "--yes", code=2)
    assert "can't be written" in laptop.errors
    assert list(laptop.ledger().runs()) == []


def test_the_exit_code_says_why_nothing_could_be_rented(laptop: Laptop) -> None:
    """The same codes as a launch: no such provider, nothing for sale."""
    laptop.kedge("selftest", "--yes", "--provider", "gcp", code=2)
    said = laptop.kedge("selftest", "--yes", "--gpu", "mi300x:8", code=3)
    assert "!!  offer" in said
    assert "mi300x:8" in laptop.errors
    assert laptop.processes() == []


def test_a_laptop_s_problem_is_reported_before_anything_is_created(laptop: Laptop) -> None:
    """The checks of `kedge doctor` come first."""
    programs = laptop.home / "bin"
    programs.mkdir()
    for name in ("ssh", "ssh-keygen", "git"):
        (programs / name).symlink_to(str(shutil.which(name)))
    said = laptop.kedge("selftest", "--yes", code=1, env={"PATH": str(programs)})
    assert "!!  permissions" in said
    assert "kedge doctor" in laptop.errors
    assert [line["check"] for line in read_report(laptop)["checks"]] == ["permissions"]


def test_a_report_holds_nothing_secret() -> None:
    """Values of secret variables, account numbers, users, addresses, and the user's own folder are masked."""
    environ = {"MY_API_TOKEN": "tok-123456", "AWS_SECRET_ACCESS_KEY": "s3cr3t/x", "HOME": "/home/ada", "LANG": "sweep"}
    text = "tok-123456 s3cr3t/x 123456789012 arn:aws:iam::123456789012:user/ada ada@example.org /home/ada/x"
    assert redact(text, environ) == "SECRET SECRET ACCOUNT ARN MAIL ~/x"
    assert redact("from 2001:db8::7/128 of kedge_123456789012_x at 07:15:33", environ) == (
        "from ADDRESS/128 of kedge_ACCOUNT_x at 07:15:33"
    )
