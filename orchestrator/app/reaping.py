"""The use case that ends what runs have left, at every provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.adapters.providers import PROVIDERS, find_entry
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.reaping import Finding, Reaping
from orchestrator.core.sweep import Leftover
from orchestrator.engine.events import Event, Remark
from orchestrator.engine.reap import Survey, reap, survey

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Something that couldn't be looked at.

    Attributes:
        matters: something may bill there, of this computer's, or of somebody's who asked for it by name.
        partly: the rest of the provider was looked at.
    """

    provider: str
    why: str
    matters: bool
    partly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What there is at all providers that can be looked at."""

    reapings: tuple[Reaping, ...]
    kept: tuple[tuple[str, Leftover], ...]
    unseen: tuple[Unseen, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings."""
        return tuple(finding for reaping in self.reapings for finding in reaping.findings)

    @property
    def acts(self) -> tuple[Reaping, ...]:
        """What can be done something about."""
        return tuple(reaping for reaping in self.reapings if reaping.acts)

    @property
    def billing(self) -> tuple[str, ...]:
        """Name what may bill although no live run accounts for it."""
        things = (finding.what for finding in self.findings if finding.bills)
        places = (
            f"what could not be seen at {each.provider} ({each.why})"
            if each.partly
            else f"whatever there is at {each.provider}, which was not looked at"
            for each in self.unseen
            if each.matters
        )
        return (*things, *places)


def look_everywhere(app: App, providers: Sequence[str], *, everyone: bool) -> Overview:
    """Look at every provider that there is, or at those that are named; nothing is changed.

    Args:
        app: the composition root.
        providers: those that must answer; empty for all whose credentials are there.
        everyone: machines of other computers' runs are to be ended, too, when they are past their deadline.

    Raises:
        BadRequestError: a provider that kedge doesn't know was named.
    """
    for name in providers:
        find_entry(name)
    used = {run.spec.provider for run in app.ledger.runs()}
    names = tuple(providers) or tuple(PROVIDERS)
    surveys = {name: _look(app, name, everyone=everyone, insist=bool(providers) or name in used) for name in names}
    found = {name: seen for name, seen in surveys.items() if isinstance(seen, Survey)}
    silent = tuple(seen for seen in surveys.values() if isinstance(seen, Unseen))
    partly = (
        Unseen(provider=name, why=part.what, matters=part.may_bill, partly=True)
        for name, seen in found.items()
        for part in seen.unseen
    )
    return Overview(
        reapings=tuple(reaping for seen in found.values() for reaping in seen.reapings),
        kept=tuple((name, left) for name, seen in found.items() for left in seen.kept),
        unseen=(*silent, *partly),
    )


def _look(app: App, provider: str, *, everyone: bool, insist: bool) -> Survey | Unseen:
    """Look at one provider; one that nobody here has credentials for can't have anything of this computer's."""
    try:
        return survey(app.world(provider), everyone=everyone, bills_when_off=find_entry(provider).bills_when_off)
    except BadRequestError as err:
        return Unseen(provider=provider, why=err.why or err.what, matters=insist)
    except KedgeError as err:
        return Unseen(provider=provider, why=err.why or err.what, matters=True)


def reap_all(app: App, reapings: Sequence[Reaping], say: Say) -> tuple[str, ...]:
    """End what was found, each run by itself: one that can't be ended must not keep others from it.

    Returns:
        What went wrong, one line each.
    """
    failures = []
    for reaping in reapings:
        try:
            reap(app.world(reaping.seen.provider), reaping, _remarks(say))
        except KedgeError as err:
            failures.append(f"run {reaping.seen.run_id}: {err.what}" + (f": {err.why}" if err.why else ""))
    app.write_ssh_config()
    return tuple(failures)


def _remarks(say: Say) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        if isinstance(event, Remark):
            say(event.text)

    return tell
