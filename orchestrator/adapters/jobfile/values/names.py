"""Parses names: of jobs, modes, environment variables and torch wheels."""

from __future__ import annotations

import re

from orchestrator.adapters.jobfile.problems import quoted
from orchestrator.core.errors import BadRequestError
from orchestrator.core.protocol.wire import TORCH_WHEEL

NAME_LENGTH = 30
NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$"

_MODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,29}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ARGUMENT = re.compile(r"[A-Za-z0-9.+_][A-Za-z0-9.+_-]*", re.ASCII)
_WHEEL = re.compile(r"[a-z][a-z0-9.]*", re.ASCII)


def fit_name(text: str) -> str:
    """Turn any text into a valid job name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:NAME_LENGTH].strip("-") or "job"


def parse_job_name(text: str) -> str:
    """Return a job's name unchanged, if it is valid.

    Raises:
        BadRequestError: it can't be part of tags and host names.
    """
    if not re.fullmatch(NAME_PATTERN, text) or text.endswith("\n"):
        raise BadRequestError(
            f"{quoted(text)} can't be a job's name",
            why=f"it becomes part of tags and host names: a-z, 0-9 and -, at most {NAME_LENGTH} characters",
            fix=f"write {fit_name(text)}",
        )
    return text


def parse_mode_name(name: str) -> str:
    """Return a mode's name unchanged, if it is valid.

    Raises:
        BadRequestError: it is not a short word.
    """
    if not _MODE.fullmatch(name):
        raise BadRequestError(
            f"{quoted(name)} can't be a mode's name",
            fix=f"use letters, digits, - and _, at most {NAME_LENGTH}",
        )
    return name


def parse_variable_name(name: str) -> str:
    """Return the name of an environment variable unchanged, if it is valid.

    Raises:
        BadRequestError: it isn't valid for a variable, or is reserved for kedge.
    """
    if not _VARIABLE.fullmatch(name):
        raise BadRequestError(
            f"{quoted(name)} can't be a variable's name", fix="use letters, digits and _, and no digit first"
        )
    if name.startswith("KEDGE_") and name != TORCH_WHEEL:
        raise BadRequestError(
            f"{quoted(name)} is kedge's own",
            why=f"kedge sets KEDGE_ variables; {TORCH_WHEEL} alone is a job's to set",
            fix="choose another name",
        )
    return name


def is_argument(value: str) -> bool:
    """Tell whether a text can be the value of a mode's argument: a number or a plain word."""
    return _ARGUMENT.fullmatch(value) is not None


def parse_torch_wheel(text: str) -> str:
    """Return from where a machine installs torch (see core.protocol.wire.BootOrder).

    Raises:
        BadRequestError: no machine could install it, which is better found before one is rented.
    """
    if text and "://" not in text and not _WHEEL.fullmatch(text):
        raise BadRequestError(
            f"{quoted(text)} is not a tag of torch's wheels",
            why="where its image has none, a machine takes torch from there",
            fix="write for example rocm6.4, cu128 or cpu, the address of an index, or none for a job without torch",
        )
    return text
