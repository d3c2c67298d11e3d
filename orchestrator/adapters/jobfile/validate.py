"""Turn a document into models, or name every mistake with its key, its line and the nearest valid key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.adapters.jobfile.document import Document
from orchestrator.adapters.jobfile.models import (
    AwsPart,
    ExpectPart,
    JobPart,
    ModePart,
    MountPart,
    ProviderPart,
    ResourcesPart,
    ResumePart,
    SettingsPart,
    SupervisorPart,
    VolumePart,
)
from orchestrator.adapters.jobfile.problems import KeyPath, Problem, dotted, nearest, quoted, refusal
from orchestrator.adapters.jobfile.unsupported import instead_of

_Model = TypeVar("_Model", bound=BaseModel)
_BLOCKS: Mapping[str, type[BaseModel]] = {
    "resources": ResourcesPart,
    "supervisor": SupervisorPart,
    "expect": ExpectPart,
    "resume": ResumePart,
    "data": MountPart,
    "file_mounts": MountPart,
    "volumes": VolumePart,
    "provider": ProviderPart,
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
    """Return what a job file says.

    Raises:
        BadRequestError: it has mistakes; all of them are named.
    """
    return _validate(document, JobPart)


def validate_settings(document: Document) -> SettingsPart:
    """Return what the user's settings say.

    Raises:
        BadRequestError: they have mistakes; all of them are named.
    """
    return _validate(document, SettingsPart)


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
    elif error["type"] == "kedge":
        said = error["ctx"]
        what, why, fix = f"{key}: {said['what']}", said["why"], said["fix"]
    else:
        wanted = _KINDS.get(error["type"])
        what = f"{key}: {quoted(error['input'])} is not {wanted}" if wanted else f"{key}: {error['msg']}"
        why, fix = "", "write it as docs/job-file.md shows"
    return Problem(line=line, what=what, why=why, fix=fix)


def _unknown_key(key_path: KeyPath, top: type[BaseModel]) -> tuple[str, str, str]:
    key = f"`{dotted(key_path)}`"
    in_mode = top is JobPart and key_path[0] == "modes"
    within = key_path[2:] if in_mode else key_path
    if instead := instead_of(within):
        return f"{key} is not supported", "it is a key of SkyPilot's that kedge doesn't have", instead
    if in_mode and len(within) == 1 and str(within[0]) in JobPart.model_fields:
        return f"{key} can't differ between modes", "it belongs to the job", f"write `{within[0]}` at the top"
    known = _known_keys(within, ModePart if in_mode else top)
    close = nearest(str(key_path[-1]), known)
    fix = f"did you mean `{close}`?" if close else f"choose one of {', '.join(known)}"
    kind = "a job file" if top is JobPart else "kedge's settings"
    return f"{key} is not a key of {kind}", f"nothing is known by that name in {_place(key_path)}", fix


def _known_keys(within: KeyPath, top: type[BaseModel]) -> list[str]:
    model = _BLOCKS[str(within[0])] if len(within) > 1 else top
    if len(within) > 2:
        model = _BLOCKS_WITHIN.get((str(within[0]), str(within[1])), model)
    return sorted(model.model_fields)


def _place(key_path: KeyPath) -> str:
    return f"`{dotted(key_path[:-1])}`" if len(key_path) > 1 else "a job"


def _as_written(value: Any, location: tuple[str | int, ...]) -> KeyPath:
    # Shapes that were made one before validation differ from the file: `data: {target: source}` became a
    # list, `supervisor: tmux` a mapping. Follow the location as far as the file goes the same way.
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
