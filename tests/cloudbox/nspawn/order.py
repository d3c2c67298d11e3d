"""The order for a keeper, and the command that starts it: what both the keeper and its parent use."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cloudbox.nspawn.seed import Seed

# A keeper's exit status.
POWERED_OFF = 0
ENDED = 3

REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The first line that a keeper reads: the machine, its base ("host" or "bare"), its disks, and its network.

    `network` is the path of a network namespace; empty: the keeper's own.
    """

    seed: Seed
    base: str
    disks: tuple[tuple[str, str], ...]
    network: str = ""

    def encode(self) -> str:
        """Return the order as a line."""
        fields = asdict(self)
        fields["seed"]["user_data"] = self.seed.user_data.hex()
        return json.dumps(fields)

    @classmethod
    def decode(cls, line: str) -> Order:
        """Parse an order that `encode` made."""
        fields = json.loads(line)
        user_data = bytes.fromhex(fields["seed"].pop("user_data"))
        disks = tuple((image, by_id) for image, by_id in fields["disks"])
        services, hidden = (tuple(fields["seed"].pop(name)) for name in ("services", "hidden"))
        seed = Seed(user_data=user_data, services=services, hidden=hidden, **fields["seed"])
        return cls(seed=seed, base=fields["base"], disks=disks, network=fields["network"])


def keeper_argv(folder: Path) -> list[str]:
    """Return the command that starts the keeper of the machine in `folder`; run it in `REPOSITORY`."""
    keeper = [sys.executable, "-m", "tests.cloudbox.nspawn.keeper", str(folder)]
    return ["unshare", "--mount", "--propagation", "private", *keeper]


def group_prefix(folder: Path) -> str:
    """Return the prefix of the control groups of the machines in `folder`; other folders have other prefixes."""
    return f"kedge-cloudbox-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}-"


def group_name(folder: Path) -> str:
    """Return the control group of the machine in this folder."""
    return group_prefix(folder.parent) + folder.name


def remove_folder(folder: Path) -> None:
    """Remove a machine's folder, and the parent folder if it was the last machine."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
