"""Where in the user's own account machines are placed, and how they are reached."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The `provider:` block of a job file, or of the user's settings, for one provider.

    kedge never changes or deletes any of it: the network and the security group belong to the user.

    Attributes:
        vpc: the network; empty for the account's default.
        subnets: where machines may be placed; empty for all subnets of the network.
        security_group: controls who may reach machines; empty for a group that kedge creates for each run.
        tags: put on everything that a run creates, in addition to kedge's own, for the bill.
        jump_host: an SSH server to go through, as `user@host:port` or a name in the user's own SSH configuration.
        proxy_command: a command whose input and output are the connection; `%h` and `%p` are filled in.
        private: machines have no public address; None: true if jump_host or proxy_command is set.
        ssh_from: who may reach machines over SSH, as CIDR; empty if not set.
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
        """Tell whether it names a part of the user's network, which has to be looked up."""
        return bool(self.vpc or self.subnets or self.security_group)

    @property
    def is_private(self) -> bool:
        """Tell whether its machines have no public address."""
        return bool(self.jump_host or self.proxy_command) if self.private is None else self.private

    def where(self, key: str) -> str:
        """Return where a key was written, as a prefix for messages; empty if unknown."""
        place = dict(self.said_at).get(key, "")
        return f"{place}: " if place else ""
