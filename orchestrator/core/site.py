"""Where in somebody's own account machines go, and how they are reached."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the `provider:` block of a job file, or of the user's settings, says of one provider.

    Nothing of it is ever changed or deleted by kedge: the network and the security group are the user's own.

    Attributes:
        vpc: the network; empty for the account's default one.
        subnets: in which machines may be; none takes those of the network.
        security_group: who may reach machines; empty for a group of kedge's that is made for each run.
        tags: what everything that a run makes carries besides kedge's own, for the bill.
        jump_host: an SSH server to go through, as `user@host:port` or a name in the user's own SSH configuration.
        proxy_command: a command whose input and output are the connection; `%h` and `%p` are filled in.
        private: machines have no public address; None: where they are reached through one of the two.
        ssh_from: who may reach machines over SSH, as CIDR; empty where nobody has said.
        said_at: where each key was written, as `file:line`.
    """

    vpc: str = ""
    subnets: tuple[str, ...] = ()
    security_group: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    jump_host: str = ""
    proxy_command: str = ""
    private: bool | None = None
    ssh_from: str = ""
    said_at: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def names_network(self) -> bool:
        """Something of the user's network was named, which has to be looked up."""
        return bool(self.vpc or self.subnets or self.security_group)

    @property
    def is_private(self) -> bool:
        """Its machines have no public address."""
        return bool(self.jump_host or self.proxy_command) if self.private is None else self.private

    def where(self, key: str) -> str:
        """Return where a key was written, for the front of a message; empty where nobody knows."""
        place = dict(self.said_at).get(key, "")
        return f"{place}: " if place else ""
