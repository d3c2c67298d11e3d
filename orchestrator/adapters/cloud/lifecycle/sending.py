"""Sends a creation, and sends it again if that is safe and may help."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.model import Made, Outcome
from orchestrator.adapters.cloud.refusals import Reaction, Refused, Unclear
from orchestrator.adapters.host.retry import poll_until

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.idempotency import Idempotency
    from orchestrator.core.ports import Clock

_WITHIN = timedelta(seconds=60)


def send_one(
    send: Callable[[], Outcome],
    *,
    before: Callable[[], None],
    refused: Callable[[], None],
    strategy: Idempotency,
    clock: Clock,
    is_new: bool,
) -> Outcome:
    """Send a creation until its outcome is clear, for a minute at most.

    It is sent again while the cloud is busy (RETRY), while the cloud doesn't know yet what was just made (NOT_YET),
    and, if the strategy allows it, while the outcome is unclear.

    Once an answer is lost, only two answers make the outcome clear again: the instance, or a refusal of the order
    itself (`Refused.settles_earlier`). If a later sending fails, that says nothing about an earlier one.

    Args:
        send: sends it once; always the same request.
        before: called before each sending: it writes the record.
        refused: called after each refusal if nothing is unclear: it takes the record back.
        strategy: the cloud's.
        clock: lets time pass.
        is_new: some of what the request names was made just now.

    Returns:
        The last unclear outcome if none has made it clear again, else the last outcome.
    """
    last: Outcome
    unclear: Unclear | None = None

    def attempt() -> bool:
        nonlocal last, unclear
        before()
        last = _read(send())
        unclear = _still_unclear(unclear, last)
        if isinstance(last, Refused) and unclear is None:
            refused()
        return not _is_worth_it(unclear or last, strategy, is_new=is_new)

    poll_until(attempt, _WITHIN, clock)
    return unclear or last


def _read(outcome: Outcome) -> Outcome:
    """Turn a refusal that the cloud's table calls unclear into an Unclear outcome."""
    if isinstance(outcome, Refused) and outcome.reaction in (Reaction.UNCLEAR, Reaction.LOOK_UP):
        return Unclear(why=outcome.says, error=outcome.error, is_final=outcome.reaction is Reaction.LOOK_UP)
    return outcome


def _still_unclear(earlier: Unclear | None, outcome: Outcome) -> Unclear | None:
    """Return the outcome that stays unclear after another sending; None if all is clear."""
    match outcome:
        case Unclear():
            return outcome
        case Made():
            return None
        case Refused():
            return None if outcome.settles_earlier else earlier


def _is_worth_it(outcome: Outcome, strategy: Idempotency, *, is_new: bool) -> bool:
    match outcome:
        case Unclear():
            return strategy.repeats_unclear and not outcome.is_final
        case Refused():
            return outcome.reaction is Reaction.RETRY or (is_new and outcome.reaction is Reaction.NOT_YET)
        case Made():
            return False
