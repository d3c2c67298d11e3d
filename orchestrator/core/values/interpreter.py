"""The Python of a job that runs on this computer: which one it is and why. Nothing is ever installed into it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PythonOrigin(StrEnum):
    """Where a job's Python comes from; the first one that exists is used."""

    ACTIVE = "active"
    """The virtual environment that is active in the shell."""
    CONDA = "conda"
    """The conda environment that is active in the shell."""
    BESIDE = "beside"
    """`.venv` beside the job file."""
    SHELL = "shell"
    """The `python3` that the shell finds."""
    KEDGE = "kedge"
    """Kedge's own environment, for its torch: the bundled trainer needs torch, and the Python above has none."""


_WHERE = {
    PythonOrigin.ACTIVE: "active",
    PythonOrigin.CONDA: "the active conda environment",
    PythonOrigin.BESIDE: "beside the job file",
    PythonOrigin.KEDGE: "kedge's own, for its torch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPython:
    """The Python on which a job's environment is built.

    Attributes:
        path: the interpreter, absolute.
        version: such as 3.12.3, or the known part of it.
        origin: why this one was chosen.
        environment: the folder of the environment that it belongs to; empty if it belongs to none.
        has_torch: it can import torch; checked for the bundled trainer only.
    """

    path: str
    version: str
    origin: PythonOrigin
    environment: str = ""
    has_torch: bool = False

    def describe(self) -> str:
        """Describe in one line which Python a job gets."""
        if self.origin is PythonOrigin.SHELL:
            return f"{self.version}, a new environment on top of {self.environment or self.path}"
        where = self.environment or self.path
        return f"{self.version}, an overlay on {where} ({_WHERE[self.origin]}; only read)"


ON_A_CLOUD = "an overlay on the machine's own, the one whose torch sees the GPUs where it has any"
"""Which Python a job gets on a rented machine, as far as that is known before the machine exists."""
