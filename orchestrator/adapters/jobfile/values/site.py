"""Parses values of the `provider:` block, and merges its layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.adapters.jobfile.problems import quoted
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.printable import require_printable
from orchestrator.core.values.site import Site

_MOST_TAGS = 40
_LONGEST_KEY = 127
_LONGEST_VALUE = 256
# What EC2 and IAM both accept. fact: aws-tag-rules
_TAG = re.compile(r"[\w\s.:/=+\-@]*")
_OURS = ("kedge-", "kedge:", "aws:")
_JUMP = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9][A-Za-z0-9._-]*(?::\d{1,5})?", re.ASCII)


def parse_tags(value: object) -> dict[str, str]:
    """Parse `{team: vision}`.

    fact: aws-tag-rules

    Raises:
        BadRequestError: AWS wouldn't accept it, or it is a tag by which kedge finds its own resources.
    """
    if not isinstance(value, Mapping):
        raise BadRequestError(f"{quoted(value)} is not a mapping of tags", fix="write for example {team: vision}")
    return {_tag_key(key): _tag_value(key, said) for key, said in value.items()}


def parse_resource_id(kind: str) -> Callable[[str], str]:
    """Return a parser of ids such as `subnet-0123456789abcdef0`."""
    pattern = re.compile(rf"{kind}-[0-9a-f]{{8,17}}")

    def parse(text: str) -> str:
        if not pattern.fullmatch(text.strip()):
            raise BadRequestError(
                f"{quoted(text)} is not the id of one", fix=f"write for example {kind}-0a1b2c3d4e5f60718"
            )
        return text.strip()

    return parse


def parse_jump_host(text: str) -> str:
    """Parse `host`, `user@host` or `user@host:port`; the host may be a name in the user's SSH configuration.

    Raises:
        BadRequestError: it is none of these.
    """
    if not _JUMP.fullmatch(text.strip()):
        raise BadRequestError(f"{quoted(text)} is not an SSH host", fix="write for example me@bastion.example.org")
    return text.strip()


def parse_proxy_command(text: str) -> str:
    """Parse a shell command of one line.

    Raises:
        BadRequestError: it is empty, or has several lines.
    """
    command = text.strip()
    if not command or "\n" in command:
        raise BadRequestError(
            f"{quoted(text)} is not a command in one line", fix="write for example `ssh -W %h:%p bastion`"
        )
    return require_printable(command)


def merge_site(base: Site, said: Mapping[str, Any], said_at: Mapping[str, str]) -> Site:
    """Merge a layer into the site so far, key by key, and tag by tag.

    Raises:
        BadRequestError: AWS wouldn't accept all these tags together.
    """
    changes = {key: value for key, value in said.items() if value is not None and key != "tags"}
    if "jump_host" in changes:
        changes.setdefault("proxy_command", "")
    elif "proxy_command" in changes:
        changes["jump_host"] = ""
    tags = dict(base.tags) | (said.get("tags") or {})
    places = dict(base.said_at) | dict(said_at)
    site = replace(base, **changes, tags=tuple(tags.items()), said_at=tuple(places.items()))
    _refuse_tags_together(site)
    return site


def _refuse_tags_together(site: Site) -> None:
    """Refuse tags that are invalid only together with other layers' tags."""
    if len(site.tags) > _MOST_TAGS:
        raise BadRequestError(
            f"{site.where('tags')}with the settings' these are more than {_MOST_TAGS} tags",
            why="AWS allows 50, and kedge needs some",
            fix="leave some out",
        )
    seen: dict[str, str] = {}
    for key, _ in site.tags:
        other = seen.setdefault(key.lower(), key)
        if other != key:
            raise BadRequestError(
                f"{site.where('tags')}the tags {quoted(other)} and {quoted(key)} differ only in case",
                why="IAM takes them for one, and refuses the run's role",
                fix="write it the same way in the job and in the settings",
            )


def _tag_key(key: str) -> str:
    if key.lower() == "name" or key.lower().startswith(_OURS):
        raise BadRequestError(
            f"the tag {quoted(key)} is taken",
            why="kedge finds what is its own by its tags; `aws:` belongs to AWS",
            fix="choose another name for it",
        )
    if not key.strip() or len(key) > _LONGEST_KEY or not _TAG.fullmatch(key):
        raise _not_a_tag(key, _LONGEST_KEY)
    return require_printable(key)


def _tag_value(key: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_VALUE or not _TAG.fullmatch(value):
        raise _not_a_tag(f"{key}: {value}", _LONGEST_VALUE)
    return require_printable(value)


def _not_a_tag(text: str, longest: int) -> BadRequestError:
    return BadRequestError(
        f"{quoted(text)} can't be a tag",
        why=f"a tag holds letters, digits, spaces and .:/=+-@_, at most {longest} characters",
        fix="shorten it, or leave out what doesn't fit",
    )
