"""The agent's errors, each with the exit code by which the laptop recognises it.

AgentError           exit 1   something failed
├── RequestError     exit 2   the request can't be carried out as written; nothing was changed
└── NoBaseError      exit 3   the base release of a difference is missing: send the whole tree
"""

from __future__ import annotations

from typing import ClassVar


class AgentError(Exception):
    """The root of the agent's errors: what happened, why, and how to fix it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        lines = [str(self.args[0])]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


class RequestError(AgentError):
    """The request can't be carried out as written; nothing was changed."""

    exit_code = 2


class NoBaseError(AgentError):
    """The base release of a difference is missing, or was changed since it was received."""

    exit_code = 3
