"""Makes the throw-away host key that a machine boots with, so that the first connection to it can be verified."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """An ECDSA key pair in OpenSSH's formats; the private key is never written to the laptop's disk.

    It is ECDSA because its replacement is ed25519: sshd presents one key of each type, so it can present both while the
    key is replaced (see agent/boot/rekey.py).
    """

    private: str = field(repr=False)
    public: str


def make_host_key() -> HostKey:
    """Generate a new key pair."""
    key = generate_private_key(SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return HostKey(private=private.decode(), public=public.decode())
