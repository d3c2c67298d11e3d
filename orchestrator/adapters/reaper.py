"""Proves that `kedge reap` runs by itself: each round of its timer writes a stamp, and a launch checks the stamp.

Launches check it if only `kedge reap` ends the bill of a forgotten machine. An installed timer alone proves little: its
key may be revoked or of another account, it may use another state folder, or its interpreter may be gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from orchestrator.adapters.host.files import read_small, write_atomically
from orchestrator.adapters.host.timer import REAP, lingers, secrets_file, state_dir_of, why_not_running
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.structs import decode_json
from orchestrator.core.values.units import format_duration

_FRESH = timedelta(minutes=45)
"""Three rounds."""
_MOST_BYTES = 1 << 20
_TIMER = f"the {REAP.name} timer of this computer"
_INSTALL = "run `kedge reap --install` again"
_AGAIN = f"`systemctl --user start {REAP.name}.service`"
_LOOK_AGAIN = f"run {_AGAIN}; `journalctl --user -u {REAP.name}` says what it did"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a round of the timer notes for one provider.

    Attributes:
        at: when it looked there.
        accounts: the names of the account (`identify_account`); empty if there was a problem.
        problem: why it could not look; empty if it could.
        no_access: the problem is the credentials: they are missing, or refused.
        python: the interpreter that ran it.
    """

    provider: str
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    accounts: tuple[str, ...] = ()
    problem: str = ""
    no_access: bool = False
    python: str


def keep_stamp(state_dir: Path, stamp: Stamp) -> None:
    """Write a provider's stamp in place of the last one.

    If a round fails, but not because of its credentials, a good stamp stays in place while it is fresh. For example,
    the network may be down for a moment, and the next round may succeed.
    """
    if stamp.problem and not stamp.no_access:
        last = read_stamp(state_dir, stamp.provider)
        if last is not None and not last.problem and abs(stamp.at - last.at) <= _FRESH:
            return
    write_atomically(_file(state_dir, stamp.provider), msgspec.json.encode(stamp))


def read_stamp(state_dir: Path, provider: str) -> Stamp | None:
    """Read a provider's last stamp; None if there is none that can be read."""
    try:
        return decode_json(read_small(_file(state_dir, provider), limit=_MOST_BYTES), Stamp)
    except (FileNotFoundError, BadRequestError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def forget_stamp(state_dir: Path, provider: str) -> None:
    """Remove a provider's stamp: a new installation must prove itself again."""
    _file(state_dir, provider).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Why nothing would end the bill of a forgotten machine.

    Attributes:
        why: the reason.
        fix: the next step.
    """

    why: str
    fix: str


def find_gap(
    environ: Mapping[str, str],
    state_dir: Path,
    provider: str,
    variables: Collection[str],
    identify: Callable[[], Collection[str]],
    now: datetime,
) -> Gap | None:
    """Return why the timer would not end a forgotten machine of an account; None if it would.

    Args:
        environ: the user's environment.
        state_dir: the state folder of the launch, whose ledger the timer must use.
        provider: the provider.
        variables: the variables of its credentials; the timer needs one of them.
        identify: returns the names of the account that the launch uses.
        now: the present instant.

    Raises:
        KedgeError: there is no systemd, or the provider doesn't answer.
    """
    key = f"write {' or '.join(variables)}=... into {secrets_file(environ, REAP)} (mode 0600), then run"
    if gap := _find_gap_of_timer(environ, state_dir, key):
        return gap
    stamp = read_stamp(state_dir, provider)
    if stamp is None:
        return Gap(why=f"{_TIMER} has made no round with the state in {state_dir}", fix=_INSTALL)
    if gap := _find_gap_of_round(stamp, key, now):
        return gap
    if not set(stamp.accounts) & set(identify()):
        return Gap(why=f"{_TIMER} has a key of another {provider} account", fix=f"{key} {_AGAIN}")
    return None


def refuse_to_move(environ: Mapping[str, str], state_dir: Path) -> None:
    """Refuse to move the timer from another state folder: nothing would end that folder's forgotten machines.

    Raises:
        BadRequestError: the timer works with another folder that is still there.
    """
    place = state_dir_of(environ, REAP)
    if place is not None and place.exists() and (gap := _find_other_folder(place, state_dir)):
        raise BadRequestError(
            gap.why, why=f"moved to {state_dir}, it would end no machine of those runs any more", fix=gap.fix
        )


def _find_gap_of_timer(environ: Mapping[str, str], state_dir: Path, key: str) -> Gap | None:
    if why := why_not_running(environ, REAP):
        return Gap(why=why, fix=f"{key} `kedge reap --install`")
    if gap := _find_other_folder(state_dir_of(environ, REAP), state_dir):
        return gap
    if not lingers(REAP):
        return Gap(why=f"{_TIMER} stops when you log out", fix="run `loginctl enable-linger`")
    return None


def _find_other_folder(place: Path | None, state_dir: Path) -> Gap | None:
    """Return what is wrong if the timer works with another state folder: it doesn't know the runs of this one.

    Args:
        place: the timer's folder; None if its unit names none.
        state_dir: this command's.
    """
    if place == state_dir:
        return None
    why = f"{_TIMER} looks after the runs in {place or 'another state folder'}, not after those in {state_dir}"
    if place is None or not place.exists():
        return Gap(why=why, fix=_INSTALL)
    move = "`kedge reap --uninstall`, then `kedge reap --install`"
    return Gap(
        why=why,
        fix=f"launch with KEDGE_STATE_DIR={shlex.quote(str(place))}; or, once no machine of its runs is left, {move}",
    )


def _find_gap_of_round(stamp: Stamp, key: str, now: datetime) -> Gap | None:
    age = f"{format_duration(abs(now - stamp.at))} ago"
    if not Path(stamp.python).exists():
        return Gap(why=f"{_TIMER} can't run: {stamp.python} is gone", fix=_INSTALL)
    if stamp.problem:
        why = f"the last round of {REAP.name}, {age}, could not look at {stamp.provider}: {stamp.problem}"
        return Gap(why=why, fix=f"{key} {_AGAIN}" if stamp.no_access else _LOOK_AGAIN)
    if abs(now - stamp.at) > _FRESH:
        why = f"the last round of {REAP.name} was {age}, although it runs every {REAP.minutes} min"
        return Gap(why=why, fix=_LOOK_AGAIN)
    return None


def _file(state_dir: Path, provider: str) -> Path:
    return state_dir / "reaper" / f"{provider}.json"
