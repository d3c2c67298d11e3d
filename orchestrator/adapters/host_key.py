"""The throw-away host key that a machine is born with, so that the first connection to it can be verified."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """An ECDSA pair in OpenSSH's formats; the private half is never written to the laptop's disk.

    ECDSA, since the one that replaces it is ed25519: sshd shows one key of each kind, and both for as long as it takes
    (see agent/rekey.py).
    """

    private: str = field(repr=False)
    public: str


def make_host_key() -> HostKey:
    """Make a new pair."""
    key = generate_private_key(SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return HostKey(private=private.decode(), public=public.decode())
