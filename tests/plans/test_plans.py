"""Plans as data: each case in the YAML files beside this is a wish, an observation, and what must follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from orchestrator.core.actions import describe, sign
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.plan import Ending, Observed, Plan
from orchestrator.core.planning.launch import plan_launch
from orchestrator.core.planning.restart import plan_restart
from orchestrator.core.planning.teardown import plan_teardown


def laid_over(base: Any, change: Any) -> Any:
    """Lay one tree of mappings over another; what isn't a mapping is replaced."""
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    return {key: laid_over(base.get(key), change[key]) if key in change else base[key] for key in {**base, **change}}


def cases() -> list[Any]:
    """Read all cases; what a case leaves out comes from its file's `base`."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.yaml")):
        text = yaml.safe_load(path.read_text())
        found += [
            pytest.param(laid_over(text["base"], case), id=f"{path.stem}: {case['says']}") for case in text["cases"]
        ]
    return found


def plan(case: dict[str, Any]) -> Plan:
    """Make the plan that the case asks for."""
    spec = msgspec.convert(case["spec"], LaunchSpec, strict=False)
    observed = msgspec.convert(case["observed"], Observed, strict=False)
    ending = msgspec.convert(case.get("ending", {}), Ending)
    match case["plan"]:
        case "launch":
            return plan_launch(spec, observed, ending)
        case "restart":
            return plan_restart(spec.run_id, spec.job, observed, send_code=True)
        case _:
            return plan_teardown(spec.run_id, observed, destination=ending.destination)


@pytest.mark.parametrize("case", cases())
def test_plan(case: dict[str, Any]) -> None:
    """The case's actions follow from its wish and its observation, or the refusal that it names."""
    if "refused" in case:
        with pytest.raises(KedgeError) as caught:
            plan(case)
        assert type(caught.value).__name__ == case["refused"]["error"]
        assert case["refused"]["says"] in str(caught.value)
        assert caught.value.fix
        return
    made = plan(case)
    assert [f"{sign(action)} {describe(action)}" for action in made.actions] == case["actions"]
    for name, value in case.get("figures", {}).items():
        assert str(getattr(made, name)) == value
    for words in case.get("notes", ()):
        assert any(words in note for note in made.notes), made.notes
