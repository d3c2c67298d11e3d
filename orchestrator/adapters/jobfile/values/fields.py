"""The types of a job file's values: how each is parsed from text, and its JSON schema for editors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from orchestrator.adapters.jobfile.problems import quoted, suggest
from orchestrator.adapters.jobfile.values.argv import parse_argv
from orchestrator.adapters.jobfile.values.limits import parse_limited_duration, parse_limited_usd
from orchestrator.adapters.jobfile.values.names import (
    NAME_PATTERN,
    parse_job_name,
    parse_mode_name,
    parse_variable_name,
)
from orchestrator.adapters.jobfile.values.nodes import MOST_NODES, RANGE_PATTERN, parse_elastic, parse_nodes
from orchestrator.adapters.jobfile.values.paths import output_path, relative_folder
from orchestrator.adapters.jobfile.values.requirements import (
    Requirements,
    parse_accelerators,
    parse_disk_size,
    parse_infra,
    parse_regions,
    parse_supervisor,
    parse_word,
)
from orchestrator.adapters.jobfile.values.site import (
    parse_jump_host,
    parse_proxy_command,
    parse_resource_id,
    parse_tags,
)
from orchestrator.adapters.jobfile.values.tasks import MOST_GPUS, TASK_PATTERN, parse_gpu_indexes, parse_task_name
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import AtEnd, StartFrom
from orchestrator.core.offer import Accelerators
from orchestrator.core.task import Basis, OnFailure, SupervisorKind
from orchestrator.core.task import Nodes as NodesOfTask
from orchestrator.core.values.units import parse_bytes

_Kind = TypeVar("_Kind", bound=StrEnum)


def _collected(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a parser so that pydantic collects its errors with its own."""

    def validate(value: Any) -> Any:
        try:
            return parse(value)
        except BadRequestError as err:
            said = {"what": err.what, "why": err.why, "fix": err.fix}
            raise PydanticCustomError("kedge", "{what}", said) from err

    return validate


def _of_text(parse: Callable[[str], Any]) -> PlainValidator:
    return PlainValidator(_collected(lambda value: parse(_text(value))))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadRequestError(f"{quoted(value)} is not a single value", fix="write it as docs/job-file.md shows")
    return value


def _secret_names(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(parse_variable_name(_text(name)) for name in value)
    if not isinstance(value, dict):
        raise BadRequestError(f"{quoted(value)} is not a list of names", fix="write for example [HF_TOKEN]")
    for name, secret in value.items():
        if secret not in (None, ""):
            raise BadRequestError(
                f"the secret {quoted(name)} has its value in the file",
                why="whoever reads the repository would have it",
                fix="write null for its value, and set the variable in your shell before a launch",
            )
    return tuple(parse_variable_name(name) for name in value)


def _argument_names(value: object) -> tuple[str, ...]:
    names = [_text(name) for name in (value if isinstance(value, list) else [value])]
    if not names or len(set(names)) < len(names):
        raise BadRequestError(
            f"{quoted(value)} is not a list of names, each once", fix="write for example [EPOCHS, BATCH_SIZE]"
        )
    return tuple(parse_variable_name(name) for name in names)


def _variable_text(value: object) -> str:
    if value is None:
        raise BadRequestError(
            "a task's variable needs a value",
            why="what comes from the laptop's environment is given to all tasks",
            fix="write it under the job's `envs`",
        )
    return _text(value)


def _workdir(value: object) -> str:
    if isinstance(value, dict):
        raise BadRequestError(
            "this takes a folder on the laptop",
            why="kedge sends your files, and clones no repository",
            fix="clone it, and name the folder; or clone it in `setup`",
        )
    return _text(value)


def _source(value: object) -> str:
    if isinstance(value, dict):
        raise BadRequestError(
            "this takes a file or folder on the laptop, or an address",
            why="kedge mounts no bucket: the machine copies it before the command starts",
            fix="write the address alone, for example s3://bucket/prefix/",
        )
    return _text(value)


def _one_of(kinds: type[_Kind], text: str) -> _Kind:
    try:
        return kinds(text)
    except ValueError as err:
        words = [str(kind) for kind in kinds]
        raise BadRequestError(
            f"{quoted(text)} is not one of {', '.join(words)}", fix=suggest(text, words) or "choose one of them"
        ) from err


Duration = Annotated[
    timedelta,
    _of_text(parse_limited_duration),
    WithJsonSchema({"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?\s*[dhms]\s*)+$"}),
]
Dollars = Annotated[
    Decimal,
    _of_text(parse_limited_usd),
    WithJsonSchema({"type": ["string", "number"], "pattern": r"^\$?[0-9]+(\.[0-9]+)?$", "minimum": 0}),
]
Text = Annotated[str, _of_text(str), WithJsonSchema({"type": "string"})]
Argv = Annotated[tuple[str, ...], _of_text(parse_argv), WithJsonSchema({"type": "string", "pattern": r"^[^\n]+\n?$"})]
Word = Annotated[str, _of_text(parse_word), WithJsonSchema({"type": "string"})]
Regions = Annotated[tuple[str, ...], _of_text(parse_regions), WithJsonSchema({"type": "string"})]
Place = Annotated[
    Requirements,
    _of_text(parse_infra),
    WithJsonSchema({"type": "string", "pattern": r"^[^/]+(/[^/]+){0,2}$"}),
]
Gpus = Annotated[
    Accelerators,
    PlainValidator(_collected(parse_accelerators)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?$"},
                {"type": "object", "minProperties": 1, "maxProperties": 1},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
            ]
        }
    ),
]
DiskSize = Annotated[
    int,
    _of_text(parse_disk_size),
    WithJsonSchema({"type": ["integer", "string"], "pattern": r"^[0-9]+([GgTt][Ii]?[Bb]?)?$", "minimum": 1}),
]
Bytes = Annotated[
    int,
    _of_text(parse_bytes),
    WithJsonSchema({"type": ["integer", "string"], "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([KkMmGgTt]?[Bb])?\s*$"}),
]
Kind = Annotated[
    SupervisorKind,
    _of_text(parse_supervisor),
    WithJsonSchema({"enum": [kind.value for kind in SupervisorKind]}),
]
Ends = Annotated[AtEnd, _of_text(partial(_one_of, AtEnd)), WithJsonSchema({"enum": [end.value for end in AtEnd]})]
Start = Annotated[
    StartFrom, _of_text(partial(_one_of, StartFrom)), WithJsonSchema({"enum": [start.value for start in StartFrom]})
]
Restarts = Annotated[int, Field(ge=0, le=1000)]
Speed = Annotated[int, Field(ge=1)]
Cpus = Annotated[int, Field(ge=1, le=1024)]
TaskName = Annotated[str, _of_text(parse_task_name), WithJsonSchema({"type": "string", "pattern": TASK_PATTERN})]
GpuIndexes = Annotated[
    tuple[int, ...],
    PlainValidator(_collected(parse_gpu_indexes)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*[0-9]+\s*([-,]\s*[0-9]+\s*)*$"},
                {"type": "integer", "minimum": 0, "maximum": MOST_GPUS - 1},
                {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1},
            ]
        }
    ),
]
Runs = Annotated[int, Field(ge=0, le=1000)]
ExpectBasis = Annotated[
    Basis, _of_text(partial(_one_of, Basis)), WithJsonSchema({"enum": [each.value for each in Basis]})
]
OnNodes = Annotated[
    NodesOfTask, _of_text(partial(_one_of, NodesOfTask)), WithJsonSchema({"enum": [each.value for each in NodesOfTask]})
]
AfterFailure = Annotated[
    OnFailure, _of_text(partial(_one_of, OnFailure)), WithJsonSchema({"enum": [each.value for each in OnFailure]})
]
Variable = Annotated[str, AfterValidator(_collected(parse_variable_name))]
Arguments = Annotated[
    tuple[str, ...],
    PlainValidator(_collected(_argument_names)),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
VariableValue = Annotated[
    str | None,
    PlainValidator(_collected(lambda value: None if value is None else _text(value))),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"]}),
]
VariableText = Annotated[
    str, PlainValidator(_collected(_variable_text)), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
Secrets = Annotated[
    tuple[str, ...],
    PlainValidator(_collected(_secret_names)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "object", "additionalProperties": {"enum": [None, ""]}},
                {"type": "array", "items": {"type": "string"}},
            ]
        }
    ),
]
Folder = Annotated[str, _of_text(relative_folder), WithJsonSchema({"type": "string", "pattern": r"^[^/~]"})]
OutputPath = Annotated[str, _of_text(output_path), WithJsonSchema({"type": "string", "pattern": r"^[^/~]"})]
Source = Annotated[str, PlainValidator(_collected(_source)), WithJsonSchema({"type": "string"})]
VolumeName = Annotated[str, _of_text(parse_job_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})]
JobName = Annotated[str, _of_text(parse_job_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})]
Workdir = Annotated[str, PlainValidator(_collected(_workdir)), WithJsonSchema({"type": "string"})]
Nodes = Annotated[
    int, _of_text(parse_nodes), WithJsonSchema({"type": ["integer", "string"], "minimum": 1, "maximum": MOST_NODES})
]
Elastic = Annotated[
    tuple[int, int], _of_text(parse_elastic), WithJsonSchema({"type": "string", "pattern": RANGE_PATTERN})
]
ModeName = Annotated[str, AfterValidator(_collected(parse_mode_name))]
TaskKey = Annotated[str, AfterValidator(_collected(parse_task_name))]
VpcId = Annotated[str, _of_text(parse_resource_id("vpc")), WithJsonSchema({"type": "string", "pattern": "^vpc-"})]
SubnetId = Annotated[
    str, _of_text(parse_resource_id("subnet")), WithJsonSchema({"type": "string", "pattern": "^subnet-"})
]
GroupId = Annotated[str, _of_text(parse_resource_id("sg")), WithJsonSchema({"type": "string", "pattern": "^sg-"})]
SnapshotId = Annotated[
    str, _of_text(parse_resource_id("snap")), WithJsonSchema({"type": "string", "pattern": "^snap-"})
]
Tags = Annotated[
    dict[str, str],
    PlainValidator(_collected(parse_tags)),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
JumpHost = Annotated[str, _of_text(parse_jump_host), WithJsonSchema({"type": "string"})]
ProxyCommand = Annotated[str, _of_text(parse_proxy_command), WithJsonSchema({"type": "string"})]
