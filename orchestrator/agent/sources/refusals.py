"""What a server's refusal means to whoever wrote the job file, and which secret may open the door."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import AgentError
from .web import WebError


class Access(NamedTuple):
    """What a source is called in errors, and what may open it.

    Attributes:
        secrets: names of those that it takes.
        is_sent: they were there, and were sent.
        hint: what else may be missing, where the server says no although they were.
    """

    what: str
    secrets: str = ""
    is_sent: bool = False
    hint: str = ""


def explain(err: WebError, access: Access) -> AgentError:
    """Say what a server's refusal means, and which secret may open the door."""
    said = f"the server says: {err.said}" if err.said else str(err)
    if err.status in (401, 403):
        return _locked(err, access, said)
    if err.status == 404:
        unseen = "" if access.is_sent or not access.secrets else f"; if it is private, {_name_them(access)}"
        return AgentError(f"there is no {access.what}", why=said, fix=f"correct the address in `data`{unseen}")
    return AgentError(
        f"{access.what} can't be fetched", why=said, fix="start again later: it goes on from where it was"
    )


def _locked(err: WebError, access: Access, said: str) -> AgentError:
    if not access.secrets:
        return AgentError(f"{access.what} is refused", why=said, fix=access.hint)
    if access.is_sent:
        fix = f"see whether {access.secrets} is right and may read it{f'; {access.hint}' if access.hint else ''}"
        return AgentError(f"{access.what} is refused (HTTP {err.status})", why=said, fix=fix)
    why = f"no {access.secrets} was sent; {said}"
    return AgentError(f"{access.what} is refused (HTTP {err.status})", why=why, fix=_name_them(access))


def _name_them(access: Access) -> str:
    return f"name {access.secrets} under `secrets`, and set it in your shell before the launch"
