"""What the laptop knows that a job file doesn't say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.credentials import is_own_credential
from orchestrator.core.errors import BadRequestError
from orchestrator.core.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Laptop:
    """The computer and the user that a job file is read for.

    Attributes:
        environ: where variables and secrets without a value are looked up.
        providers: names that `infra` may have.
        sites: by provider: what the user's settings say.
        given: variables with their values, from the command line.
        allowed: credentials of kedge's own that the user lets this job have.
        allows_proxy_command: the user lets this job say what leads to its machine.
    """

    environ: Mapping[str, str]
    providers: Sequence[str]
    sites: tuple[tuple[str, Site], ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()
    allows_proxy_command: bool = False

    def refuse_own_credential(self, name: str) -> None:
        """Refuse to take a variable of this computer's with which kedge itself rents machines.

        Raises:
            BadRequestError: it is one, and the user hasn't said that this job may have it.
        """
        if is_own_credential(name) and name not in self.allowed:
            raise BadRequestError(
                f"{name} is for kedge itself: this computer's value isn't given to a job",
                why="names like this one hold what machines are rented with: whoever has it rents and deletes for you",
                fix=f"leave it out, write what is no secret under `envs`, or allow it with --allow-secret {name}",
            )
