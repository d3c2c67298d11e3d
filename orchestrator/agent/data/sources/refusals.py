"""Explains a server's refusal to the user: what it means, and which secret may be missing."""

from __future__ import annotations

from typing import NamedTuple

from ...base.errors import AgentError
from .web import WebError


class Access(NamedTuple):
    """A source's name in errors, and the secrets that give access to it.

    Attributes:
        secrets: the names of the secrets that it accepts.
        is_sent: they were set, and were sent.
        hint: what else may be missing if the server refuses although they were sent.
    """

    what: str
    secrets: str = ""
    is_sent: bool = False
    hint: str = ""


def explain(err: WebError, access: Access) -> AgentError:
    """Turn a server's refusal into an error that says what to do."""
    said = f"the server says: {err.said}" if err.said else str(err)
    if err.status in (401, 403):
        return _locked(err, access, said)
    if err.status == 404:
        unseen = "" if access.is_sent or not access.secrets else f"; if it is private, {_name_them(access)}"
        return AgentError(f"{access.what} does not exist", why=said, fix=f"correct the address in `data`{unseen}")
    return AgentError(f"{access.what} can't be fetched", why=said, fix="start again later: the download resumes")


def _locked(err: WebError, access: Access, said: str) -> AgentError:
    if not access.secrets:
        return AgentError(f"access to {access.what} was denied", why=said, fix=access.hint)
    if access.is_sent:
        fix = f"check that {access.secrets} is right and may read it{f'; {access.hint}' if access.hint else ''}"
        return AgentError(f"access to {access.what} was denied (HTTP {err.status})", why=said, fix=fix)
    why = f"no {access.secrets} was sent; {said}"
    return AgentError(f"access to {access.what} was denied (HTTP {err.status})", why=why, fix=_name_them(access))


def _name_them(access: Access) -> str:
    return f"name {access.secrets} under `secrets`, and set it in your shell before the launch"
