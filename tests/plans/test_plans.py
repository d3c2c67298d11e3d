"""Plans as data: each case in the YAML files beside this is a wish, an observation, and what must follow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from orchestrator.core.action_words import describe, sign
from orchestrator.core.actions import StartCommand
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.plan import AfterStart, Observed, Plan
from orchestrator.core.planning.launch import plan_launch
from orchestrator.core.planning.restart import plan_restart, plan_start_again
from orchestrator.core.planning.teardown import plan_teardown
from tests.plans.cases import read_cases


def plan(case: dict[str, Any]) -> Plan:
    """Make the plan that the case asks for."""
    spec = msgspec.convert(case["spec"], LaunchSpec, strict=False)
    observed = msgspec.convert(case["observed"], Observed, strict=False)
    after_start = msgspec.convert(case.get("after_start", {}), AfterStart)
    match case["plan"]:
        case "launch":
            return plan_launch(spec, observed, after_start)
        case "restart":
            return plan_restart(spec, observed)
        case "start":
            return plan_start_again(spec, observed)
        case _:
            return plan_teardown(spec.run_id, observed, destination=after_start.destination)


@pytest.mark.parametrize("case", read_cases("launch", "resume", "tasks", "modes"))
def test_plan(case: dict[str, Any]) -> None:
    """The case's actions follow from its wish and its observation, or the refusal that it names."""
    if "refused" in case:
        with pytest.raises(KedgeError) as caught:
            plan(case)
        assert type(caught.value).__name__ == case["refused"]["error"]
        assert case["refused"]["says"] in str(caught.value)
        assert caught.value.fix
        assert case["refused"].get("in_full", str(caught.value)) == str(caught.value)
        return
    made = plan(case)
    run_id, observed = case["spec"]["run_id"], case["observed"]
    assert (made.run_id, made.revision) == (run_id, observed["revision"])
    there = {machine["id"] for machine in observed.get("machines", ())}
    later = range(case["spec"]["job"].get("num_nodes", 1) + 1)
    made_or_gone = {f"{run_id}-m{observed.get('machines_before', 0) + number}" for number in later}
    known = there | made_or_gone | {observed.get("head_before"), ""}
    assert {getattr(action, "machine_id", "") for action in made.actions} <= known
    assert [f"{sign(action)} {describe(action)}" for action in made.actions] == case["actions"]
    done = [list(action.done) for action in made.actions if isinstance(action, StartCommand)]
    assert done == [case.get("done", [])] * len(done)
    for name, value in case.get("figures", {}).items():
        assert str(getattr(made, name)) == value
    prices = [[each.mode, str(each.expected), str(each.usd), str(each.total_usd)] for each in made.modes]
    assert prices == case.get("modes", prices)
    for words in case.get("notes", ()):
        assert any(words in note for note in made.notes), made.notes
    assert list(made.notes) == case.get("all_notes", list(made.notes))
