"""How a decision is written, and the reasons that several share."""

from __future__ import annotations

from dataclasses import dataclass

from tests.cloudbox.aws.model.rules import Never, Rule

STATE = "depends on what the account has: moto and the box's own modules look"
DESCRIBES = "tells what happens, or what another call needs; every value is allowed"
FILTERS = "about the values of filters, where an unknown one finds nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision; `why` there are no rules, where there are none."""

    members: str
    says: str
    rules: tuple[Rule, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A structure that must have one of these members: its documentation says so, and the model doesn't."""

    structure: str
    any_of: tuple[str, ...]


def no_rules(members: str, says: str, why: str) -> Decision:
    return Decision(members=members, says=says, why=why)


def never(members: str) -> Decision:
    return Decision(members=members, says="", rules=(Never(),))
