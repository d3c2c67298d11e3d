"""Tells whether a job runs kedge's own trainer, and what is then sent with the code.

It runs as `-m trainer`, or as `-m kedge_trainer`, which is ours even if the code has a `trainer` of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.adapters.host.resources import resource

_CONTINUED = re.compile(r"\\\r?\n")
_RUNS_TRAINER = re.compile(
    r"(?:python[\d.]*|torchrun)\b[^\n;&|#]*\s(?:-m|--module)[\s=]+((?:kedge_)?trainer)(?![\w.-])", re.IGNORECASE
)
_LAUNCHER = "kedge_trainer"


def runs_bundled_trainer(run: str, workdir: Path | None) -> bool:
    """Tell whether a script runs the bundled trainer with python or torchrun.

    Args:
        run: the shell script.
        workdir: the folder whose code is sent; if it has a `trainer`, `-m trainer` is that one.
    """
    names = {match[1].lower() for match in _RUNS_TRAINER.finditer(_CONTINUED.sub(" ", run))}
    return _LAUNCHER in names or ("trainer" in names and not has_trainer(workdir))


def trainer_packages(workdir: Path | None) -> dict[str, Path]:
    """Return the packages to send: path in the code -> folder here. The trainer hides none that the code has.

    Args:
        workdir: the folder whose code is sent.
    """
    place = f"{_LAUNCHER}/trainer" if has_trainer(workdir) else "trainer"
    return {_LAUNCHER: resource(_LAUNCHER), place: resource("trainer")}


def has_trainer(workdir: Path | None) -> bool:
    """Tell whether the job's code has a `trainer`, which hides kedge's under this name."""
    return workdir is not None and any((workdir / name).exists() for name in ("trainer", "trainer.py"))
