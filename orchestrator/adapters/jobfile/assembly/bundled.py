"""Tells whether a job runs kedge's own trainer, which is then sent with the code."""

from __future__ import annotations

import re
from pathlib import Path

_CONTINUED = re.compile(r"\\\r?\n")
_RUNS_TRAINER = re.compile(
    r"(?:python[\d.]*|torchrun)\b[^\n;&|#]*\s(?:-m|--module)[\s=]+trainer(?![\w.-])", re.IGNORECASE
)


def runs_bundled_trainer(run: str, workdir: Path | None) -> bool:
    """Tell whether a script runs `-m trainer` with python or torchrun, and the code has no trainer of its own.

    Args:
        run: the shell script.
        workdir: the folder whose code is sent.
    """
    if not _RUNS_TRAINER.search(_CONTINUED.sub(" ", run)):
        return False
    own = () if workdir is None else (workdir / "trainer", workdir / "trainer.py")
    return not any(path.exists() for path in own)
