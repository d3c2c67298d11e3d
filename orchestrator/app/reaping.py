"""The use case of `kedge reap`: surveys what runs have left at every provider, and ends it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from orchestrator.adapters.host.timer import REAP, RUN_BY, install_timer, remove_timer, run_once, state_dir_of
from orchestrator.adapters.providers import PROVIDERS, find_entry, identify_account
from orchestrator.adapters.reaper import Stamp, forget_stamp, keep_stamp, read_stamp, refuse_to_move
from orchestrator.adapters.rest.failures import RefusedError
from orchestrator.app.launch.reaper import rests_on_timer
from orchestrator.app.root import App
from orchestrator.app.world import provider_context
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.policy.findings import Finding, Reaping
from orchestrator.core.sweep import Leftover, UnseenPart
from orchestrator.engine.events import Event, Remark
from orchestrator.engine.reap import Survey, reap, survey_provider

if TYPE_CHECKING:
    from orchestrator.engine.world import World

Say = Callable[[str], None]
_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """A provider, or a part of it, that couldn't be queried.

    Attributes:
        matters: something may bill there that is this computer's, or the user has named the provider.
        partly: the rest of the provider was queried.
        no_access: the credentials are missing, or refused.
    """

    provider: str
    why: str
    matters: bool
    partly: bool = False
    no_access: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The surveys of all providers that could be queried."""

    reapings: tuple[Reaping, ...]
    kept: tuple[tuple[str, Leftover], ...]
    unseen: tuple[Unseen, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings."""
        return tuple(finding for reaping in self.reapings for finding in reaping.findings)

    @property
    def acts(self) -> tuple[Reaping, ...]:
        """The reapings that have something to do."""
        return tuple(reaping for reaping in self.reapings if reaping.acts)

    @property
    def billing(self) -> tuple[str, ...]:
        """Describe what may bill although it belongs to no live run."""
        things = (finding.what for finding in self.findings if finding.bills)
        places = (
            f"what could not be queried at {each.provider} ({each.why})"
            if each.partly
            else f"anything at {each.provider}, which was not queried"
            for each in self.unseen
            if each.matters
        )
        return (*things, *places)


def look_everywhere(app: App, providers: Sequence[str], *, everyone: bool) -> Overview:
    """Survey every provider, or those that are named; nothing is changed.

    Args:
        app: the composition root.
        providers: those that must answer; empty for all that have credentials.
        everyone: also end machines of other computers' runs that are past their deadline.

    Raises:
        BadRequestError: a named provider is unknown.
    """

    def survey(world: World) -> Survey:
        bills_when_off = find_entry(world.provider.name).bills_when_off
        return survey_provider(world, everyone=everyone, bills_when_off=bills_when_off)

    surveys = ask_each(app, providers, survey)
    found = {name: seen for name, seen in surveys.items() if isinstance(seen, Survey)}
    silent = tuple(seen for seen in surveys.values() if isinstance(seen, Unseen))
    partly = (part for name, seen in found.items() for part in unseen_parts(name, seen.unseen))
    return Overview(
        reapings=tuple(reaping for seen in found.values() for reaping in seen.reapings),
        kept=tuple((name, left) for name, seen in found.items() for left in seen.kept),
        unseen=(*silent, *partly),
    )


def ask_each(app: App, providers: Sequence[str], ask: Callable[[World], _Answer]) -> Mapping[str, _Answer | Unseen]:
    """Ask every provider, or those that are named, the same.

    Raises:
        BadRequestError: a named provider is unknown.
    """
    for name in providers:
        find_entry(name)
    used = {run.spec.provider for run in app.ledger.runs()}
    names = tuple(providers) or tuple(PROVIDERS)
    return {name: _ask(app, name, ask, insist=bool(providers) or name in used) for name in names}


def unseen_parts(provider: str, parts: Sequence[UnseenPart]) -> Sequence[Unseen]:
    """Describe the parts of a provider that couldn't be queried."""
    return [Unseen(provider=provider, why=part.what, matters=part.may_bill, partly=True) for part in parts]


def _ask(app: App, provider: str, ask: Callable[[World], _Answer], *, insist: bool) -> _Answer | Unseen:
    """Ask one provider. One without credentials here can't have machines of this computer.

    A failure must not stop the survey of other providers, whose machines would go on billing.
    """
    try:
        return ask(app.world(provider))
    except BadRequestError as err:
        return Unseen(provider=provider, why=err.why or err.what, matters=insist, no_access=True)
    except KedgeError as err:
        return Unseen(provider=provider, why=err.why or err.what, matters=True, no_access=_is_no_access(err))
    except Exception as err:  # noqa: BLE001 - an answer that nobody foresaw
        return Unseen(provider=provider, why=_unforeseen(err), matters=True)


def reap_all(app: App, reapings: Sequence[Reaping], say: Say) -> tuple[str, ...]:
    """End what was found, run by run; a run that can't be ended doesn't stop the others.

    Returns:
        The errors, one line each.
    """
    failures = []
    for reaping in reapings:
        try:
            reap(app.world(reaping.seen.provider), reaping, _remarks(say))
        except Exception as err:  # noqa: BLE001 - as in `_ask`
            failures.append(f"run {reaping.seen.run_id}: {_describe(err)}")
    app.write_ssh_config()
    return tuple(failures)


def _is_no_access(err: KedgeError) -> bool:
    """Tell whether credentials are missing or refused; a 403 without a code is a firewall's, not the API's."""
    if isinstance(err, RefusedError):
        return err.status in (401, 403) and bool(err.code)
    return isinstance(err, BadRequestError)


def _describe(err: Exception) -> str:
    """Describe any failure in one line."""
    if isinstance(err, KedgeError):
        return f"{err.what}: {err.why}" if err.why else err.what
    return _unforeseen(err)


def _unforeseen(err: Exception) -> str:
    """Describe a bug of kedge's in one line; the log has the traceback."""
    _log.error("unexpected", exc_info=err)
    return " ".join(f"unexpected {type(err).__name__}: {err}".split())


def leave_stamps(app: App, found: Overview, say: Say) -> None:
    """Leave a stamp for each provider that needs a reaper: what this round of the timer could query.

    A launch requires such a stamp (adapters/reaper). Only rounds of the timer leave any. A stamp that can't be written
    is reported: later launches are refused without it, but the round is valid.
    """
    if app.settings.environ.get(RUN_BY) != REAP.name:
        return
    for name in _reaped():
        unseen = next((each for each in found.unseen if each.provider == name), None)
        try:
            keep_stamp(app.settings.state_dir, _stamp(app, name, unseen))
        except Exception as err:  # noqa: BLE001 - as in `_ask`
            say(f"! this round leaves no stamp of {name}, so launches there will be refused: {_describe(err)}")


def _stamp(app: App, provider: str, unseen: Unseen | None) -> Stamp:
    stamp = Stamp(provider=provider, at=app.clock.now(), python=sys.executable)
    if unseen is not None:
        return replace(stamp, problem=unseen.why, no_access=unseen.no_access)
    try:
        accounts = identify_account(provider, provider_context(app.settings, app.clock))
    except KedgeError as err:
        return replace(stamp, problem=err.why or err.what, no_access=_is_no_access(err))
    return replace(stamp, accounts=tuple(sorted(accounts)))


def install_reaper(app: App) -> str:
    """Install the timer of `kedge reap`, run its first round, and describe both.

    Raises:
        BadRequestError: the timer looks after the runs of another state folder.
        KedgeError: this computer has no systemd for user units.
    """
    refuse_to_move(app.settings.environ, app.settings.state_dir)
    said = [install_timer(app.settings, REAP)]
    # Only now: if there is no systemd for user units, nothing may change.
    for name in _reaped():
        forget_stamp(app.settings.state_dir, name)
    if problem := run_once(REAP):
        said.append(problem)
    for name in _reaped():
        sign_in = find_entry(name).sign_in
        if sign_in is None or not sign_in.may_be_there(app.settings.environ):
            continue
        stamp = read_stamp(app.settings.state_dir, name)
        problem = stamp.problem if stamp else f"`journalctl --user -u {REAP.name}` says why"
        said.append(f"! Its first round could not look at {name}: {problem}" if problem else f"It looks after {name}.")
    return "\n".join(said)


def remove_reaper(app: App) -> str:
    """Remove the timer, and name what it looked after until now.

    Raises:
        BadRequestError: the user's settings can't be read; the timer is still there.
        KedgeError: the files are gone, but there is no systemd that could be told to stop it.
    """
    place = state_dir_of(app.settings.environ, REAP)
    live = (run for run in app.ledger.runs(live_only=True) if rests_on_timer(app, run.spec))
    left = [run.run_id for run in live if app.ledger.machines(run.run_id, live_only=True)]
    said = [remove_timer(app.settings, REAP)]
    if place not in (None, app.settings.state_dir):
        said.append(f"! It looked after the runs in {place}: nothing ends their forgotten machines now.")
    if left:
        said.append(f"! Only you can end the bill of {', '.join(left)} now: `kedge teardown`, or `kedge reap`.")
    return "\n".join(said)


def _reaped() -> tuple[str, ...]:
    """List the providers where nothing but `kedge reap` ends a forgotten machine's bill."""
    return tuple(name for name, entry in PROVIDERS.items() if entry.needs_reaper)


def _remarks(say: Say) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        if isinstance(event, Remark):
            say(event.text)

    return tell
