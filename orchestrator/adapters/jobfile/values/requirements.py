"""Parses requirements on machines, from job files and flags, and merges their layers.

`Requirements` is a dict with fields of `core.job.Resources`, only those that are set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from orchestrator.adapters.jobfile.problems import nearest, quoted, suggest
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import OF_A_PROVIDER, Resources
from orchestrator.core.offer import Accelerators
from orchestrator.core.task import SupervisorKind

Requirements = dict[str, Any]

_ACCELERATORS = re.compile(r"([a-z0-9][a-z0-9._-]*)(?::(\d{1,3}))?", re.ASCII)
_DISK_SIZE = re.compile(r"(\d{1,9})([gt]i?b?)?", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*", re.ASCII)
_OTHER_NAMES = {"digitalocean": "do"}


def parse_accelerators(value: object) -> Accelerators:
    """Parse `MI300X`, `A10G:4` or `{A10G: 4}`.

    Raises:
        BadRequestError: it is none of these, or names several kinds.
    """
    if isinstance(value, list | Mapping) and len(value) > 1:
        raise BadRequestError(
            f"{quoted(value)} names several kinds of GPU",
            why="a run is planned and priced with one kind",
            fix="name one, and choose another for one launch with --gpu",
        )
    text = _accelerators_text(value)
    match = _ACCELERATORS.fullmatch(text.strip().lower())
    count = int(match[2] or 1) if match else 0
    if match is None or count < 1:
        raise BadRequestError(
            f"{quoted(value)} is not a number of GPUs of one kind", fix="write for example MI300X or A10G:4"
        )
    return Accelerators(name=match[1], count=count)


def _accelerators_text(value: object) -> str:
    if isinstance(value, list) and value:
        return str(value[0])
    if isinstance(value, Mapping) and value:
        # `{A10G:4}` without a space is YAML for a key "A10G:4" without a value.
        name, count = next(iter(value.items()))
        return str(name) if count is None else f"{name}:{count}"
    return str(value)


def parse_disk_size(value: object) -> int:
    """Parse GiB: `256`, `256GB` or `1TB` (SkyPilot's GB are 2^30 bytes).

    Raises:
        BadRequestError: it is not a size, or less than one GiB.
    """
    match = _DISK_SIZE.fullmatch(str(value).strip().lower())
    size = int(match[1]) * (1024 if (match[2] or "g").startswith("t") else 1) if match else 0
    if size < 1:
        raise BadRequestError(
            f"{quoted(value)} is not a disk size",
            why="a disk size is a whole number of GiB",
            fix="write for example 256 or 256GB",
        )
    return size


def parse_word(value: object) -> str:
    """Parse a provider's name for a region, an instance type or an image.

    Raises:
        BadRequestError: it has characters that no such name has, or asks for a Docker image.
    """
    text = str(value).strip()
    if text.startswith(("docker:", "skypilot:")):
        raise BadRequestError(
            f"{quoted(text)} is not an image of a provider's",
            why="kedge boots a machine's own image; it runs no containers and has no images of its own",
            fix="leave image_id out for the provider's GPU image, and run the container in `run`",
        )
    if not isinstance(value, str) or not _WORD.fullmatch(text):
        raise BadRequestError(f"{quoted(value)} is not a name at a provider", fix="`kedge offers` lists what there is")
    return text


def parse_infra(value: object) -> Requirements:
    """Parse `aws`, `aws/us-east-1` or `aws/us-east-1/us-east-1a`; a part `*` matches any.

    Raises:
        BadRequestError: it has more than three parts, or an empty one.
    """
    parts = str(value).strip().split("/")
    if not isinstance(value, str) or len(parts) > 3 or not all(parts):
        raise BadRequestError(
            f"{quoted(value)} is not a place",
            why="a place is a provider, then perhaps a region, then perhaps a zone",
            fix="write for example aws, aws/us-east-1 or do/tor1",
        )
    named = {name: part for name, part in zip(("provider", "regions", "zone"), parts, strict=False) if part != "*"}
    return {name: parse_regions(part) if name == "regions" else parse_word(part) for name, part in named.items()}


def parse_regions(value: object) -> tuple[str, ...]:
    """Parse a region, or several separated by commas, in the order in which to try them.

    Raises:
        BadRequestError: one of them is not a name.
    """
    return tuple(dict.fromkeys(parse_word(part.strip()) for part in str(value).split(",")))


def parse_provider(name: str, providers: Sequence[str]) -> str:
    """Return a provider's name in kedge's spelling.

    Raises:
        BadRequestError: there is no provider with that name.
    """
    lower = name.strip().lower()
    lower = _OTHER_NAMES.get(lower, lower)
    if lower not in providers:
        raise BadRequestError(
            f"there is no provider {quoted(name)}",
            why=f"kedge has {', '.join(providers)}",
            fix=suggest(name, providers),
        )
    return lower


def parse_supervisor(value: object) -> SupervisorKind:
    """Parse a supervisor's name.

    Raises:
        BadRequestError: there is no supervisor with that name.
    """
    kinds = [kind.value for kind in SupervisorKind]
    try:
        return SupervisorKind(str(value).strip().lower())
    except ValueError as err:
        close = nearest(str(value), kinds)
        raise BadRequestError(
            f"{quoted(value)} is not a supervisor",
            why=f"there are {', '.join(kinds)}",
            fix=f"did you mean {close}?" if close else "choose one of them",
        ) from err


def merge_requirements(base: Resources, over: Requirements) -> Resources:
    """Merge requirements into others; the later ones win.

    Regions, types and images are dropped if the provider changes, and zones if the region changes. So
    `--provider local` rehearses a job that was written for a cloud.
    """
    laid: Requirements = {}
    if over.get("provider", base.provider) != base.provider:
        laid |= {each.name: each.default for each in fields(base) if each.metadata.get(OF_A_PROVIDER)}
    if over.get("regions", base.regions) != base.regions:
        laid["zone"] = None
    return replace(base, **(laid | over))
