"""The journal: records an intent in the ledger before every act that changes the world, and its outcome afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.ledger import IntentState, Ledger

if TYPE_CHECKING:
    from orchestrator.core.actions import Journaled
    from orchestrator.core.ports import Clock


@dataclass(slots=True)
class Entry:
    """What the ledger will record of an act that has succeeded; whoever acts may write into it."""

    note: str = ""


@contextmanager
def journaled(ledger: Ledger, clock: Clock, run_id: str, action: Journaled) -> Iterator[Entry]:
    """Record an action as intended, then as done or failed; the caller holds the run's lock.

    A process that dies in between leaves the intent open. Creations don't use this: after a failure, only a clear
    refusal may close their intent (engine/steps/creation.py).
    """
    intent = ledger.intend(run_id, action, clock.now())
    entry = Entry()
    try:
        yield entry
    except BaseException as err:
        ledger.close_intent(intent, IntentState.FAILED, clock.now(), type(err).__name__)
        raise
    ledger.close_intent(intent, IntentState.DONE, clock.now(), entry.note)
