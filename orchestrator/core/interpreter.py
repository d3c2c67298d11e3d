"""The Python of a job on this computer: the laptop finds it, the machine reads it, and nothing is installed into it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PythonOrigin(StrEnum):
    """Why a job has this Python; the first of these that there is."""

    ACTIVE = "active"
    """The virtual environment that is active in the shell."""
    CONDA = "conda"
    """The conda environment that is active in the shell."""
    BESIDE = "beside"
    """`.venv` beside the job file."""
    SHELL = "shell"
    """The `python3` that the shell finds."""
    KEDGE = "kedge"
    """Kedge's own environment, for its torch: the bundled trainer needs one, and the Python above has none."""


_WHERE = {
    PythonOrigin.ACTIVE: "active",
    PythonOrigin.CONDA: "the active conda environment",
    PythonOrigin.BESIDE: "beside the job file",
    PythonOrigin.KEDGE: "kedge's own, for its torch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPython:
    """The Python on top of which a job's environment is made.

    Attributes:
        path: the interpreter, absolute.
        version: such as 3.12.3, or as much of it as is known.
        origin: why it is this one.
        environment: the folder of the environment that it belongs to; empty for one that belongs to none.
        has_torch: it can import torch; looked at for the bundled trainer only.
    """

    path: str
    version: str
    origin: PythonOrigin
    environment: str = ""
    has_torch: bool = False

    def describe(self) -> str:
        """Say in one line which Python a job gets."""
        if self.origin is PythonOrigin.SHELL:
            return f"{self.version}, a new environment on top of {self.environment or self.path}"
        where = self.environment or self.path
        return f"{self.version}, an overlay on {where} ({_WHERE[self.origin]}; only read)"


ON_A_CLOUD = "an overlay on the machine's own, the one whose torch sees the GPUs where it has any"
"""Which Python a job gets on a rented machine, as far as that is known before there is one."""
