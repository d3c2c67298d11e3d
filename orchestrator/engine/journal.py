"""The journal: records an intent in the ledger before every act that changes the world, and its outcome afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.ledger import IntentState, Ledger

if TYPE_CHECKING:
    from orchestrator.core.actions import Journaled
    from orchestrator.core.errors import KedgeError
    from orchestrator.core.ports import Clock


@dataclass(slots=True)
class Entry:
    """What the ledger will record of an act; whoever acts may write into it.

    Attributes:
        error: why it failed, although others that were recorded with it may have succeeded.
    """

    note: str = ""
    error: KedgeError | None = None


@contextmanager
def journaled(ledger: Ledger, clock: Clock, run_id: str, action: Journaled) -> Iterator[Entry]:
    """Record an action as intended, then as done or failed; the caller holds the run's lock.

    A process that dies in between leaves the intent open. Creations don't use this: after a failure, only a clear
    refusal may close their intent (engine/steps/creation.py).
    """
    with journaled_together(ledger, clock, run_id, [action]) as (entry,):
        yield entry


@contextmanager
def journaled_together(
    ledger: Ledger, clock: Clock, run_id: str, actions: Sequence[Journaled]
) -> Iterator[Sequence[Entry]]:
    """Record several actions as intended before the first is performed, then each as done or failed."""
    intents = [ledger.intend(run_id, action, clock.now()) for action in actions]
    entries = [Entry() for _ in intents]
    try:
        yield entries
    except BaseException as err:
        for intent in intents:
            ledger.close_intent(intent, IntentState.FAILED, clock.now(), type(err).__name__)
        raise
    for intent, entry in zip(intents, entries, strict=True):
        if entry.error is None:
            ledger.close_intent(intent, IntentState.DONE, clock.now(), entry.note)
        else:
            ledger.close_intent(intent, IntentState.FAILED, clock.now(), type(entry.error).__name__)
