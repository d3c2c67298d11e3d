"""What a job takes from the laptop: variables, the user's settings, and permissions given on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.credentials import is_own_credential
from orchestrator.core.values.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Laptop:
    """The computer and the user for whom a job file is read.

    Attributes:
        environ: the source of variables and secrets without a value.
        providers: names that are valid in `infra`.
        sites: provider -> what the user's settings say.
        given: variables with their values, from the command line.
        taken: names of variables that the command line takes from `environ`.
        allowed: names of kedge's own credentials that the user lets this job have.
        allows_proxy_command: the user lets the job file name a proxy command.
    """

    environ: Mapping[str, str]
    providers: Sequence[str]
    sites: tuple[tuple[str, Site], ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    taken: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()
    allows_proxy_command: bool = False

    def refuse_own_credential(self, name: str) -> None:
        """Refuse to take a variable from this computer that holds kedge's own credentials.

        Raises:
            BadRequestError: it does, and the user hasn't allowed it for this job.
        """
        if is_own_credential(name) and name not in self.allowed:
            raise BadRequestError(
                f"{name} is reserved for kedge itself: a job doesn't get this computer's value",
                why="a credential of this name rents machines: whoever has it can rent and delete in your name",
                fix=f"leave it out, write it under `envs` if it isn't a secret, or allow it with --allow-secret {name}",
            )
