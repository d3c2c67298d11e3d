"""What a machine is told at boot, and what it reports."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.agent.box import RUN, Box
from tests.agent.places import Place
from tests.agent.trees import FIRST, pack

PREFIX = f"runs/{RUN}"


def order(box: Box, **fields: Any) -> None:
    (box.root / "boot.json").write_text(json.dumps(fields))


def readiness(root: Path) -> dict[str, Any]:
    return dict(json.loads((root / "ready").read_text()))


def outcomes(root: Path) -> list[tuple[str, bool]]:
    return [(phase["phase"], phase["ok"]) for phase in readiness(root)["phases"]]


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put_code(store: Place) -> str:
    """Stage the code, and return the SHA-256 of its archive."""
    archive = gzip.compress(pack("hash0001", FIRST))
    store.write(f"code/{sha256_of(archive)}.tar.gz", archive)
    return sha256_of(archive)
