"""Renders the job file reference from the JSON schema that editors read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml

from docs.site.tables import table

Schema = Mapping[str, Any]

_HEAD = """\
# Job file reference

Every key of a job file, with its type, its default and an example. [The job file](job-file.md) explains the keys and
how they work together. All keys are optional, except those marked "Required". This page is generated from the JSON
schema that `kedge job-schema` prints.
"""
_KINDS = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false", "object": "mapping"}
_ORDER = (
    *("resources", "data", "volumes", "tasks", "tasks.supervisor", "tasks.expect", "supervisor", "resume", "expect"),
    *("provider", "provider.aws"),
)
"""Parts in the order in which the page has them, by their titles; parts that aren't named here follow."""
_MODE = "mode"


def render_job_keys(schema: Schema) -> str:
    """Return the page: the job's own keys, then those of each part."""
    parts = {part["title"]: part for part in schema["$defs"].values() if part["title"] != _MODE}
    ordered = [parts.pop(title) for title in _ORDER if title in parts] + list(parts.values())
    text = "Keys at the top of a job file."
    blocks = [_HEAD, _render("The job", text, _own_first(schema)["properties"], schema)]
    blocks += [_render_part(part, schema) for part in ordered]
    return "".join(blocks) + _render_mode(schema)


def _own_first(schema: Schema) -> Schema:
    """Put the keys that modes don't have first: `name` and `workdir` begin a job file."""
    mode = _mode(schema)["properties"]
    own = {key: field for key, field in schema["properties"].items() if key not in mode}
    return {**schema, "properties": {**own, **schema["properties"]}}


def _mode(schema: Schema) -> Schema:
    return next(part for part in schema["$defs"].values() if part["title"] == _MODE)


def _render_mode(schema: Schema) -> str:
    """Describe a mode's own keys; of the others, list the names alone: they say what the job's say."""
    mode = _mode(schema)
    own = {key: field for key, field in mode["properties"].items() if key not in schema["properties"]}
    keys = ", ".join(f"`{key}`" for key in mode["properties"] if key not in own)
    shared = f"These keys have the same meaning as the job's: {keys}."
    return _render(f"`{_MODE}`", f"{mode['description']} {shared}", own, schema)


def _render_part(part: Schema, schema: Schema) -> str:
    return _render(f"`{part['title']}`", part["description"], part["properties"], schema, part.get("required", ()))


def _render(heading: str, text: str, fields: Schema, schema: Schema, required: Collection[str] = ()) -> str:
    rows = ((f"`{key}`", *_row(field, schema, is_required=key in required)) for key, field in fields.items())
    return f"\n## {heading}\n\n{text}\n\n" + table(("key", "value", "meaning", "example"), rows)


def _row(field: Schema, schema: Schema, *, is_required: bool) -> tuple[str, str, str]:
    kinds = list(dict.fromkeys(_kinds(field, schema)))
    examples = ", ".join(f"`{_written(example)}`" for example in field.get("examples", ()))
    return "; or ".join(kinds), ("Required. " if is_required else "") + field["description"], examples


def _kinds(field: Schema, schema: Schema) -> Iterator[str]:
    """Say which values a key takes, each way of writing them once."""
    if "$ref" in field:
        title = schema["$defs"][field["$ref"].rpartition("/")[2]]["title"]
        yield f"[{title}](#{title.replace('.', '')})"
    elif "anyOf" in field:
        for choice in field["anyOf"]:
            yield from _kinds(choice, schema)
    elif "enum" in field or "const" in field:
        choices = [choice for choice in field.get("enum", [field.get("const")]) if choice]
        yield ", ".join(f"`{choice}`" for choice in choices) or "no value"
    else:
        yield from _plain(field, schema)


def _plain(field: Schema, schema: Schema) -> Iterator[str]:
    kinds = field.get("type", "object")
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "array":
            yield "list of " + " or ".join(dict.fromkeys(_kinds(field["items"], schema)))
        elif kind == "object" and isinstance(inner := field.get("additionalProperties"), dict):
            yield "mapping to " + " or ".join(dict.fromkeys(_kinds(inner, schema)))
        elif kind != "null":
            yield _KINDS[kind]


def _written(example: object) -> str:
    """Write a value as a job file has it, on one line."""
    if isinstance(example, str):
        return example
    return (
        yaml.safe_dump(example, default_flow_style=True, sort_keys=False, width=10_000).removesuffix("\n...\n").strip()
    )
