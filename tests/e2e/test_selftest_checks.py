"""Each check of `kedge selftest` fails once, for its own reason, and nothing is left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.app.selftest.life import CUT_OFF, Selftest
from orchestrator.app.selftest.probes import check_results
from orchestrator.core.checkup import Verdict
from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.selftest import find_fault
from tests.e2e.selftest_stage import (
    RefusesToCreate,
    Stage,
    damage_data,
    damage_end,
    damage_start,
    lose_hold,
    lose_machine,
    lose_results,
    play,
    sell_nothing,
    try_probes,
)
from tests.support.laptop import Laptop


@pytest.fixture
def laptop(laptop: Laptop) -> Laptop:
    """A laptop whose self-test takes seconds."""
    laptop.extra_env["KEDGE_SELFTEST_SECONDS"] = "2"
    return laptop


@pytest.mark.parametrize(
    ("moment", "harm", "failing"),
    [
        (("offer", 1), lambda stage: stage.wrap_provider(RefusesToCreate), "creation"),
        (("boot", 1), lose_machine, "boot"),
        (("code", 1), Stage.break_agent, "code"),
        (("data", 1), lambda stage: shutil.rmtree(stage.home / "numbers"), "data"),
        (("start", 1), Stage.break_agent, "start"),
        (("offer", 1), damage_data, "first steps"),
        (("start", 2), damage_start, "resume"),
        (("results", 1), lose_results, "results"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_check_fails_for_its_own_reason_and_nothing_is_left(
    moment: tuple[str, int],
    harm: Callable[[Stage], object],
    failing: str,
    laptop: Laptop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken check fails, with a reason; later checks are skipped; the machine is ended and the account swept."""
    monkeypatch.chdir(laptop.home)
    _assert_failed(play(laptop, {moment: harm}), failing, laptop)


def test_each_probe_of_a_machine_finds_its_own_fault_and_a_training_that_fails_is_one(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, deadline, code, notice and stop, on one machine that goes on; then its training fails at the end."""
    monkeypatch.chdir(laptop.home)
    test = play(laptop, {("first steps", 1): try_probes, ("start", 2): damage_end})
    _assert_failed(test, "training", laptop)


def _assert_failed(test: Selftest, failing: str, laptop: Laptop) -> None:
    failed = [line for line in test.tried if line.verdict is Verdict.FAILED]
    assert failed[0].name == failing, test.tried
    assert failed[0].found
    assert test.tried[-1].name == "sweep"
    assert test.tried[-1].found == "nothing of it is left"
    assert test.error is not None
    assert test.error.exit_code in (1, 2)
    assert laptop.processes() == []


@pytest.mark.parametrize(
    ("moment", "harm", "failing"),
    [
        ("notice", lose_hold, ["teardown", CUT_OFF, "sweep"]),
        ("offer", sell_nothing, ["creation", "store", "sweep"]),
    ],
    ids=["undying", "blind"],
)
def test_what_may_still_bill_is_reported_with_exit_code_5(
    moment: str,
    harm: Callable[[Stage], object],
    failing: list[str],
    laptop: Laptop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine that can't be ended, an account that can't be swept: the last line says what to do about it."""
    monkeypatch.chdir(laptop.home)
    test = play(laptop, {(moment, 1): harm})
    assert [line.name for line in test.tried if line.verdict is Verdict.FAILED] == failing
    assert isinstance(test.error, StillBillingError)
    assert "kedge reap" in test.error.fix


def test_results_are_right_only_if_each_step_was_done_once() -> None:
    """No step is missing or repeated over exactly one stop; and the training saw the notice."""
    status = {"step": 12, "starts": 2, "noticed": True}
    steps = "".join(f"{step}\n" for step in range(1, 13))
    assert find_fault(steps, json.dumps(status)) == ""
    assert "steps are" in find_fault(steps + "12\n", json.dumps(status))
    assert "began 1 times" in find_fault(steps, json.dumps({**status, "starts": 1}))
    assert "notice" in find_fault(steps, json.dumps({**status, "noticed": False}))
    assert "can't be read" in find_fault(steps, "")


def test_results_that_are_missing_or_wrong_fail_their_check(tmp_path: Path) -> None:
    """They are read from the fetched folder."""
    output = tmp_path / "output"
    output.mkdir()
    (output / "status.json").write_text(json.dumps({"step": 12, "starts": 2, "noticed": True}))
    with pytest.raises(KedgeError, match=r"steps\.log is missing"):
        check_results(tmp_path)
    (output / "steps.log").write_text("")
    with pytest.raises(KedgeError, match="steps are"):
        check_results(tmp_path)
    (output / "steps.log").write_text("".join(f"{step}\n" for step in range(1, 13)))
    assert "each step was done once" in check_results(tmp_path)
