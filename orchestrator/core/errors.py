"""The errors that kedge raises on purpose, with their exit codes.

KedgeError                 exit 1   something failed
├── BadRequestError        exit 2   the request can't be carried out as written; nothing was contacted
│   └── JobKeyError                 the value of a job file's key is wrong
├── NoCapacityError        exit 3   what was requested is not for sale now
├── OverBudgetError        exit 4   the worst case costs more than the cap
├── StillBillingError      exit 5   something may still be billing, and only a person can settle it
├── UnreachableError       exit 1   a machine doesn't answer; it may come back
├── NonsenseError          exit 1   a machine's answer is invalid or endless
├── UnfitMachineError      exit 1   a machine can't do what it was rented for
├── ConflictError          exit 1   another command is at work on the same run
└── RunFailedError         exit 1   the user's command failed for good

An error says what happened, why, and how to fix it: one line each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from orchestrator.core.offer import Offer


_LINE = 500
"""The most characters to keep of one line that an agent printed: it becomes one line of an error."""


class KedgeError(Exception):
    """The root: what happened, why, and how to fix it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        said = {"": self.what, "  why: ": self.why, "  fix: ": self.fix}
        return "\n".join(f"{label}{_indent(text)}" for label, text in said.items() if text or not label)


def _indent(text: str) -> str:
    """Indent the further lines of a text behind its label, so that a quoted machine can't add fields of its own."""
    return "\n       ".join(text.splitlines())


class BadRequestError(KedgeError):
    """The request can't be carried out as written; nothing was contacted."""

    exit_code = 2


class JobKeyError(BadRequestError):
    """The value of a job file's key is wrong. Who knows the file adds its line.

    Attributes:
        key_path: where the key is: `("tasks", "fit", "gpus")`.
        mode: the job's mode, if it isn't the run's present one.
    """

    def __init__(
        self, key_path: tuple[str, ...], what: str, *, why: str = "", fix: str = "", mode: str | None = None
    ) -> None:
        super().__init__(f"`{'.'.join(key_path)}`: {what}", why=why, fix=fix)
        self.key_path = key_path
        self.fault = what
        self.mode = mode


class NoCapacityError(KedgeError):
    """What was requested isn't for sale now.

    Attributes:
        covers: tells whether the refusal also applies to another offer, as a refused quota does.
    """

    exit_code = 3

    def __init__(
        self, what: str, *, why: str = "", fix: str = "", covers: Callable[[Offer], bool] = lambda _offer: False
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.covers = covers


class OverBudgetError(KedgeError):
    """The worst case costs more than the cap."""

    exit_code = 4


class StillBillingError(KedgeError):
    """Something may still be billing."""

    exit_code = 5


class UnreachableError(KedgeError):
    """A machine doesn't answer; it may come back."""


class NonsenseError(KedgeError):
    """A machine's answer is invalid or endless: the machine is broken, or somebody has taken it over."""


class UnfitMachineError(KedgeError):
    """A machine can't do its job, for example because a GPU computes wrong results; another machine may.

    Attributes:
        offer: what the machine was rented as; None if the ledger doesn't know.
        covered: other offers that the same reason rules out.
        machines: how many were ended for it.
    """

    offer: Offer | None = None
    covered: tuple[Offer, ...] = ()
    machines: int = 1


class ConflictError(KedgeError):
    """Another command is at work on the same run."""


class RunFailedError(KedgeError):
    """The user's command failed for good."""


def agent_error(what: str, exit_code: int, said: bytes) -> KedgeError:
    """Make an error from what the agent printed on standard error: its what, why and fix lines."""
    lines = [line.strip()[:_LINE] for line in said.decode(errors="replace").splitlines() if line.strip()]
    fix = next((line.removeprefix("fix: ") for line in lines if line.startswith("fix: ")), "")
    why = [line.removeprefix("error: ").removeprefix("why: ") for line in lines if not line.startswith("fix: ")]
    return KedgeError(
        what,
        why="; ".join(why[-2:]) or f"its agent exited with {exit_code} and said nothing",
        fix=fix or "look at it with `kedge ssh`, or end it with `kedge teardown`",
    )
