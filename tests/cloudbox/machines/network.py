"""The private network of a box's machines: a bridge, and a network namespace with a private address for each machine.

There, as in a cloud's network, only admitted packets arrive, others are dropped without an answer, and a machine that
has ended sends nothing any more. A machine doesn't see this computer's network: relays connect this computer to its
sshd, and it to the services that it needs. Nothing is left when this process ends, in any way.

Where this computer doesn't allow namespaces, machines share its network (`private_address`), and nothing is dropped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.cloudbox.machines.private_address import give_address
from tests.cloudbox.machines.relays import Relays, Way
from tests.cloudbox.nspawn.namespaces import make_namespace, path_of, run_in

_LOGGER = logging.getLogger(__name__)
_SSH = 22
_IP = ("ip", "-batch", "-")
# Moto has addresses anywhere in 10.0.0.0/8, whatever the subnet.
_INSIDE = """\
link set lo up
addr add {address}/8 dev {interface}
link set {interface} up
"""
_RULES = """\
table inet box
delete table inet box
table inet box {{
    chain arriving {{
        type filter hook input priority 0; policy drop;
        iif lo accept;
        ct state established,related accept;
        {admitted}
    }}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Who may open connections to a machine: addresses and networks; an empty protocol, or no ports, means all."""

    sources: tuple[str, ...]
    protocol: str = ""
    ports: tuple[int, int] | None = None


@dataclass(slots=True)
class _Member:
    namespace: int
    link: str
    admissions: tuple[Admission, ...] | None = None


class Network:
    """The machines that have joined; callers hold the box's lock."""

    def __init__(self) -> None:
        self._switch: int | None = None
        self._relays: Relays | None = None
        self._members: dict[str, _Member] = {}
        self._links = 0

    def has(self, name: str) -> bool:
        """Tell whether a machine has a network namespace of its own."""
        return name in self._members

    def join(self, name: str, *, interface: str, private: str, public: str, services: Iterable[str]) -> str:
        """Make a machine's namespace, and return its path; empty if the machine shares this computer's network.

        Args:
            name: The machine.
            interface: What its interface in the private network is called; empty: it has none.
            private: Its private address.
            public: The loopback address on which its sshd listens, and is reached from here.
            services: URLs on loopback addresses of this computer, which the machine reaches at the same addresses.
        """
        if interface:
            try:
                return self._join(name, interface, private, public, services)
            except OSError as err:
                _LOGGER.warning("%s shares this computer's network: %s", name, err)
                self.leave(name)
        give_address(private)
        return ""

    def admit(self, name: str, admissions: Sequence[Admission]) -> None:
        """Admit these to a machine, and nobody else, to new connections; a machine without a namespace admits all."""
        member = self._members.get(name)
        if member and member.admissions != tuple(admissions):
            member.admissions = tuple(admissions)
            lines = [_render(source, each) for each in admissions for source in each.sources]
            run_in(member.namespace, ("nft", "-f", "-"), _RULES.format(admitted="\n        ".join(lines)))

    def leave(self, name: str) -> None:
        """Cut a machine off: its peers get no answer any more."""
        member = self._members.pop(name, None)
        if member is None or self._switch is None:
            return
        if member.link:
            run_in(self._switch, _IP, f"link del {member.link}\n")
        if self._relays:
            self._relays.close_ways(name)
        os.close(member.namespace)

    def close(self) -> None:
        """Cut all off."""
        for name in list(self._members):
            self.leave(name)
        if self._relays:
            self._relays.close()
        if self._switch is not None:
            os.close(self._switch)

    def _join(self, name: str, interface: str, private: str, public: str, services: Iterable[str]) -> str:
        switch, relays = self._make_switch()
        member = self._members[name] = _Member(make_namespace(), "")
        self._links += 1
        link, inside = f"v{self._links}", path_of(member.namespace)
        plug = f"link add {link} type veth peer name {interface} netns {inside}\nlink set {link} up master vpc\n"
        run_in(switch, _IP, plug)
        member.link = link
        run_in(member.namespace, _IP, _INSIDE.format(address=private, interface=interface))
        self.admit(name, ())
        relays.open(name, Way((public, _SSH), None, member.namespace))
        for url in services:
            place = urlsplit(url)
            relays.open(name, Way((str(place.hostname), int(place.port or 80)), member.namespace, None))
        return inside

    def _make_switch(self) -> tuple[int, Relays]:
        if self._switch is None:
            switch = make_namespace()
            try:
                run_in(switch, _IP, "link add vpc up type bridge\n")
            except OSError:
                os.close(switch)
                raise
            self._switch = switch
        self._relays = self._relays or Relays()
        return self._switch, self._relays


def _render(source: str, admission: Admission) -> str:
    match = {"": "", "icmp": "ip protocol icmp"}.get(admission.protocol, f"meta l4proto {admission.protocol}")
    if admission.protocol in ("tcp", "udp") and admission.ports:
        match = f"{admission.protocol} dport {admission.ports[0]}-{admission.ports[1]}"
    return f"ip saddr {source} {match} accept;"
