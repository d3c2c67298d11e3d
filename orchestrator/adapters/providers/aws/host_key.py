"""The throw-away host key that a machine is born with, so that the first connection to it can be verified."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """An ed25519 pair in OpenSSH's formats; the private half is never written to the laptop's disk."""

    private: str = field(repr=False)
    public: str


def make_host_key() -> HostKey:
    """Make a new pair."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return HostKey(private=private.decode(), public=public.decode())
