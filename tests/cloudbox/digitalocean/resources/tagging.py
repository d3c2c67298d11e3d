"""Tags: their syntax, and what carries them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.cloudbox.digitalocean.account.account import Account
from tests.cloudbox.digitalocean.account.call import NO_CONTENT, not_found, unprocessable
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")

# fact: do-tag-syntax
_SYNTAX = re.compile(r"[A-Za-z0-9:_-]{1,255}")


def take_tags(account: Account, tags: Sequence[str] | None) -> list[str]:
    """Make the tags exist that a new resource is to carry, and return them without repetition.

    Raises:
        ApiError: one has characters that tags can't have.
    """
    for tag in tags or ():
        if not _SYNTAX.fullmatch(tag):
            raise unprocessable(f"Tag names can only contain letters, numbers, colons, dashes and underscores: {tag!r}")
    account.tags.update(dict.fromkeys(tags or ()))
    return list(dict.fromkeys(tags or ()))


@routes.on("GET", "/tags", "tag:read")
def list_tags(cloud: Cloud, call: Call) -> Answer:
    """List all tags."""
    return page(call, "tags", [_show(cloud.account, tag) for tag in cloud.account.tags])


@routes.on("POST", "/tags", "tag:create")
def create_tag(cloud: Cloud, call: Call) -> Answer:
    """Create a tag. One that is there already is refused: nobody says what the API does. fact: do-tag-again."""
    name = str(call.body.get("name", ""))
    if name in cloud.account.tags:
        raise unprocessable("Tag name has already been taken")
    (tag,) = take_tags(cloud.account, [name])
    return Answer(status=201, body={"tag": _show(cloud.account, tag)})


@routes.on("GET", "/tags/{tag}", "tag:read")
def get_tag(cloud: Cloud, call: Call) -> Answer:
    """Show a tag."""
    return Answer(body={"tag": _show(cloud.account, _known(cloud, call))})


@routes.on("DELETE", "/tags/{tag}", "tag:delete")
def delete_tag(cloud: Cloud, call: Call) -> Answer:
    """Delete a tag, and take it from all that carries it."""
    tag = _known(cloud, call)
    for _, thing in _taggable(cloud.account):
        if tag in thing.tags:
            thing.tags.remove(tag)
    for firewall in cloud.account.firewalls.values():
        if tag in firewall.tags:
            firewall.tags.remove(tag)
    del cloud.account.tags[tag]
    return NO_CONTENT


@routes.on("POST", "/tags/{tag}/resources", "tag:create")
def tag_resources(cloud: Cloud, call: Call) -> Answer:
    """Let resources carry a tag."""
    tag = _known(cloud, call)
    for thing in _named(cloud.account, call):
        if tag not in thing.tags:
            thing.tags.append(tag)
    return NO_CONTENT


@routes.on("DELETE", "/tags/{tag}/resources", "tag:delete")
def untag_resources(cloud: Cloud, call: Call) -> Answer:
    """Take a tag from resources."""
    tag = _known(cloud, call)
    for thing in _named(cloud.account, call):
        if tag in thing.tags:
            thing.tags.remove(tag)
    return NO_CONTENT


def _known(cloud: Cloud, call: Call) -> str:
    tag = call.params["tag"]
    if tag not in cloud.account.tags:
        raise not_found()
    return tag


def _taggable(account: Account) -> Iterator[tuple[tuple[str, str], Any]]:
    for droplet in account.present():
        yield ("droplet", str(droplet.id)), droplet
    for image in account.images.values():
        if image.public is None:
            yield ("image", str(image.id)), image
    for volume in account.volumes.values():
        yield ("volume", volume.id), volume
    for snapshot in account.volume_snapshots.values():
        yield ("volume_snapshot", snapshot.id), snapshot


def _named(account: Account, call: Call) -> list[Any]:
    things = dict(_taggable(account))
    wanted = [(one.get("resource_type"), str(one.get("resource_id"))) for one in call.body.get("resources", [])]
    if not all(name in things for name in wanted):
        raise not_found()
    return [things[name] for name in wanted]


def _show(account: Account, tag: str) -> dict[str, Any]:
    counts = {"droplet": 0, "image": 0, "volume": 0, "volume_snapshot": 0}
    for (kind, _), thing in _taggable(account):
        counts[kind] += tag in thing.tags
    by_kind: dict[str, Any] = {f"{kind}s": {"count": count} for kind, count in counts.items()}
    return {"name": tag, "resources": {"count": sum(counts.values()), **by_kind, "databases": {"count": 0}}}
