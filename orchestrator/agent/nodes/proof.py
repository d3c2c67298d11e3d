"""How machines of a run recognize each other: both prove that they know the run's token, which is never sent.

Each sends a random challenge, and proves itself with an HMAC (RFC 2104, with SHA-256) of both. So whoever listens
learns nothing that opens a later connection. The head proves itself second: a stranger gets nothing from it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets

from .channel import ANSWER_SECONDS, Channel, LostError, Message
from .group import Group

_CHALLENGE_BYTES = 32
_CHALLENGE_LENGTH = 2 * _CHALLENGE_BYTES


class StrangerError(LostError):
    """The other side doesn't prove that it is a machine of this run."""


def admit(channel: Channel, group: Group) -> None:
    """Greet a machine that has connected to the head; it learns the run's name once it has proved itself.

    A configuration of an earlier version has no token: then anybody learns the names of run and task.

    Raises:
        StrangerError: it is none of this run's machines.
        OSError: it doesn't answer, or the connection is broken.
    """
    greeting: Message = {"run": group.run, "task": group.task}
    if group.token:
        challenge = secrets.token_hex(_CHALLENGE_BYTES)
        channel.send({"challenge": challenge})
        answer = channel.receive()
        other = _challenge_of(answer)
        if not _is_proof(answer, _prove(group, "machine", challenge, other)):
            raise StrangerError("it doesn't know this run's token")
        greeting["proof"] = _prove(group, "head", challenge, other)
    channel.send(greeting)


def join(channel: Channel, group: Group, seconds: float = ANSWER_SECONDS) -> None:
    """Recognize the head at the other side of a new connection.

    Raises:
        StrangerError: something else listens there.
        OSError: it doesn't answer, or the connection is broken.
    """
    greeting = channel.receive(seconds)
    if group.token:
        challenge = secrets.token_hex(_CHALLENGE_BYTES)
        other = _challenge_of(greeting)
        channel.send({"challenge": challenge, "proof": _prove(group, "machine", other, challenge)})
        try:
            greeting = channel.receive(seconds)
        except LostError as err:
            raise StrangerError(f"{err}; it may have another token, since this run was started anew") from err
        if not _is_proof(greeting, _prove(group, "head", other, challenge)):
            raise StrangerError("it doesn't know this run's token")
    if (greeting.get("run"), greeting.get("task")) != (group.run, group.task):
        raise StrangerError("another run listens there")


def _challenge_of(message: Message) -> str:
    found = message.get("challenge")
    if not isinstance(found, str) or len(found) != _CHALLENGE_LENGTH:
        raise StrangerError("it asks for no proof, and gives none")
    return found


def _prove(group: Group, role: str, of_head: str, of_machine: str) -> str:
    text = json.dumps([role, group.run, group.task, of_head, of_machine])
    return hmac.new(group.token.encode(), text.encode(), hashlib.sha256).hexdigest()


def _is_proof(message: Message, wanted: str) -> bool:
    found = message.get("proof")
    return isinstance(found, str) and hmac.compare_digest(found.encode(errors="replace"), wanted.encode())
