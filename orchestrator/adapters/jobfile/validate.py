"""Validates documents: returns models, or one error that names every mistake, its line and the nearest valid key."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.adapters.jobfile.document import Document
from orchestrator.adapters.jobfile.models import FlagsPart, JobPart, VariantPart
from orchestrator.adapters.jobfile.parts import (
    ExpectPart,
    JobExpectPart,
    MountPart,
    ResourcesPart,
    ResumePart,
    SupervisorPart,
    VolumePart,
)
from orchestrator.adapters.jobfile.problems import KeyPath, Problem, dotted, nearest, quoted, refusal
from orchestrator.adapters.jobfile.provider_parts import AwsPart, ProviderPart, SettingsPart
from orchestrator.adapters.jobfile.task_parts import TaskPart, TaskSupervisorPart
from orchestrator.adapters.jobfile.unsupported import instead_of
from orchestrator.core.errors import BadRequestError

_Model = TypeVar("_Model", bound=BaseModel)
_BLOCKS: Mapping[str, type[BaseModel]] = {
    "resources": ResourcesPart,
    "supervisor": SupervisorPart,
    "expect": JobExpectPart,
    "resume": ResumePart,
    "data": MountPart,
    "file_mounts": MountPart,
    "volumes": VolumePart,
    "provider": ProviderPart,
}
_BLOCKS_OF_TASK: Mapping[str, type[BaseModel]] = {
    "supervisor": TaskSupervisorPart,
    "expect": ExpectPart,
    "resume": ResumePart,
}
_BLOCKS_WITHIN: Mapping[tuple[str, str], type[BaseModel]] = {("provider", "aws"): AwsPart}
_KINDS = {
    "model_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
    "tuple_type": "a list",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_parsing_size": "a smaller number",
    "greater_than_equal": "a larger number",
    "less_than_equal": "a smaller number",
}


def validate_job(document: Document) -> JobPart:
    """Return the model of a job file.

    Raises:
        BadRequestError: it is invalid; the error names all mistakes.
    """
    return _validate(document, JobPart)


def validate_settings(document: Document) -> SettingsPart:
    """Return the model of the user's settings.

    Raises:
        BadRequestError: they are invalid; the error names all mistakes.
    """
    return _validate(document, SettingsPart)


def validate_override(key: str, value: object) -> FlagsPart:
    """Return a flag's value, as a part of a job.

    Raises:
        BadRequestError: its value is invalid.
    """
    said = reduce(lambda inner, name: {name: inner}, reversed(key.split(".")), value)
    try:
        return FlagsPart.model_validate(said)
    except ValidationError as err:
        what, why, fix = _explain(err.errors(include_url=False)[0])
        raise BadRequestError(what, why=why, fix=fix) from err


def _validate(document: Document, model: type[_Model]) -> _Model:
    try:
        return model.model_validate(document.value)
    except ValidationError as err:
        found = err.errors(include_url=False)
        raise refusal(document.path, [_problem(document, error, model) for error in found]) from err


def _problem(document: Document, error: ErrorDetails, top: type[BaseModel]) -> Problem:
    key_path = _as_written(document.value, error["loc"])
    line = document.line(key_path)
    key = f"`{dotted(key_path)}`"
    if error["type"] == "extra_forbidden":
        what, why, fix = _unknown_key(key_path, top)
    elif error["type"] == "missing":
        what, why, fix = f"{key} is missing", "", "write it as docs/job-file.md shows"
    else:
        what, why, fix = _explain(error)
        what = f"{key}: {what}"
    return Problem(line=line, what=what, why=why, fix=fix)


def _explain(error: ErrorDetails) -> tuple[str, str, str]:
    """Explain an error: what is wrong with the value, why, and what to write instead."""
    if error["type"] == "kedge":
        said = error["ctx"]
        return said["what"], said["why"], said["fix"]
    wanted = _KINDS.get(error["type"])
    what = f"{quoted(error['input'])} is not {wanted}" if wanted else error["msg"]
    return what, "", "write it as docs/job-file.md shows"


def _unknown_key(key_path: KeyPath, top: type[BaseModel]) -> tuple[str, str, str]:
    key = f"`{dotted(key_path)}`"
    in_mode = top is JobPart and key_path[0] == "modes"
    within = key_path[2:] if in_mode else key_path
    if instead := instead_of(within):
        return f"{key} is not supported", "it is a key of SkyPilot's that kedge doesn't have", instead
    if in_mode and len(within) == 1 and str(within[0]) in JobPart.model_fields:
        return f"{key} can't differ between modes", "it belongs to the job", f"write `{within[0]}` at the top"
    if within[0] == "tasks" and str(key_path[-1]).strip().isdigit():
        return f"{key} is not a key of a job file", "a comma within {} begins another key", "write `gpus: [0, 2, 4]`"
    known = _known_keys(within, VariantPart if in_mode else top)
    close = nearest(str(key_path[-1]), known)
    fix = f"did you mean `{close}`?" if close else f"choose one of {', '.join(known)}"
    kind = "a job file" if top is JobPart else "kedge's settings"
    return f"{key} is not a key of {kind}", f"nothing is known by that name in {_place(key_path)}", fix


def _known_keys(within: KeyPath, top: type[BaseModel]) -> list[str]:
    if within[0] == "tasks":
        model = TaskPart if len(within) <= 3 else _BLOCKS_OF_TASK[str(within[2])]
        return sorted(model.model_fields)
    model = _BLOCKS[str(within[0])] if len(within) > 1 else top
    if len(within) > 2:
        model = _BLOCKS_WITHIN.get((str(within[0]), str(within[1])), model)
    return sorted(model.model_fields)


def _place(key_path: KeyPath) -> str:
    return f"`{dotted(key_path[:-1])}`" if len(key_path) > 1 else "a job"


def _as_written(value: Any, location: tuple[str | int, ...]) -> KeyPath:
    # Some shapes were normalized before validation and differ from the file: `data: {target: source}` became a list,
    # `supervisor: tmux` a mapping. Follow the location as far as the file has the same shape.
    written: list[str | int] = []
    for part in location:
        if isinstance(value, dict) and isinstance(part, int):
            return (*written, list(value)[part])
        if part == "[key]" or not isinstance(value, dict | list):
            break
        written.append(part)
        if isinstance(value, dict):
            value = value.get(str(part))
        elif isinstance(part, int):
            value = value[part]
    return tuple(written)
