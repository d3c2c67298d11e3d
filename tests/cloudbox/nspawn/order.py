"""What a keeper is told, and how it is started: the side of it that whoever starts it needs as well."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cloudbox.nspawn.seed import Seed

# What a keeper ends with.
POWERED_OFF = 0
ENDED = 3

REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The first line that a keeper reads: which machine, over which base ("host" or "bare"), with which disks."""

    seed: Seed
    base: str
    disks: tuple[tuple[str, str], ...]

    def encode(self) -> str:
        """Return the order as a line."""
        fields = asdict(self)
        fields["seed"]["user_data"] = self.seed.user_data.hex()
        return json.dumps(fields)

    @classmethod
    def decode(cls, line: str) -> Order:
        """Read an order that `encode` made."""
        fields = json.loads(line)
        user_data = bytes.fromhex(fields["seed"].pop("user_data"))
        disks = tuple((image, by_id) for image, by_id in fields["disks"])
        services, hidden = (tuple(fields["seed"].pop(name)) for name in ("services", "hidden"))
        seed = Seed(user_data=user_data, services=services, hidden=hidden, **fields["seed"])
        return cls(seed=seed, base=fields["base"], disks=disks)


def keeper_argv(folder: Path) -> list[str]:
    """Return the command, to be run in `REPOSITORY`, that keeps a machine whose folder is `folder`."""
    keeper = [sys.executable, "-m", "tests.cloudbox.nspawn.keeper", str(folder)]
    return ["unshare", "--mount", "--propagation", "private", *keeper]


def group_prefix(folder: Path) -> str:
    """Return how the control groups of all machines whose folders lie in `folder` begin, and those of no others."""
    return f"kedge-cloudbox-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}-"


def group_name(folder: Path) -> str:
    """Return the control group of the machine whose folder this is."""
    return group_prefix(folder.parent) + folder.name


def remove_folder(folder: Path) -> None:
    """Remove a machine's folder, and with the last one the folder of all machines."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
