"""Rebuilds what a client sent from the wire: the operation's parameters by the names of AWS's model.

Values stay as they came: texts where the protocol has only texts, JSON's own kinds where it has those.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import botocore.session
from botocore.exceptions import UnknownServiceError
from botocore.model import (
    ListShape,
    MapShape,
    OperationModel,
    OperationNotFoundError,
    ServiceModel,
    Shape,
    StructureShape,
)

_MODELS = {"servicequotas": "service-quotas", "monitoring": "cloudwatch"}
"""Where the name that requests are signed for isn't the model's."""
_OF_THE_PROTOCOL = frozenset({"Action", "Version"})
_SIGNING = ("x-amz-date", "x-amz-security-token", "x-amz-content-sha256", "x-amz-user-agent", "x-amz-decoded-content")
_TRAILERS = ("x-amz-trailer", "x-amz-sdk-", "x-amz-te", "x-amz-checksum-")
_QUERY_OF_S3 = ("X-Amz-", "x-id")


@dataclass(slots=True)
class Sent:
    """A request as it was sent.

    Attributes:
        operation: what AWS's model says of it.
        params: by the model's names; what isn't there wasn't sent.
        unknown: names on the wire that the model doesn't have.
        of_text: whether numbers and truth came as texts.
    """

    operation: OperationModel
    params: dict[str, Any] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    of_text: bool = True


@cache
def model_of(service: str) -> ServiceModel:
    """Return the model of a service, by the name that requests are signed for.

    Raises:
        UnknownServiceError: botocore has none.
    """
    return botocore.session.get_session().get_service_model(_MODELS.get(service, service))


def rebuild(
    service: str, action: str, wire: Mapping[str, Any], *, query: str, headers: Mapping[str, str], body: bytes
) -> Sent | None:
    """Rebuild a request; None for an operation that no model has.

    Args:
        service: the name that the request is signed for.
        action: the operation.
        wire: the form's parameters, or those in the path.
        query: the URL's query, for protocols that use it.
        headers: with names in lower case.
        body: what was sent, as far as it has a structure.
    """
    try:
        operation = model_of(service).operation_model(action)
    except (UnknownServiceError, OperationNotFoundError):
        return None
    sent = Sent(operation)
    match operation.service_model.protocol:
        case "ec2" | "query":
            _read_form(sent, {name: value for name, value in wire.items() if name not in _OF_THE_PROTOCOL})
        case "json":
            sent.of_text = False
            sent.params = _from_json(operation.input_shape, json.loads(body or b"{}"), "", sent.unknown)
        case "rest-json" | "rest-xml":
            _read_rest(sent, wire, dict(parse_qsl(query, keep_blank_values=True)), headers, body)
        case protocol:
            raise NotImplementedError(f"the box can't read requests of the protocol {protocol}")
    return sent


def wire_name(shape: Shape, member: str, *, ec2: bool = False) -> str:
    """Return how a member is called on the wire."""
    named = shape.serialization
    if ec2:
        return str(named["queryName"]) if "queryName" in named else _capital(str(named.get("name", member)))
    return str(named.get("name", member))


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _read_form(sent: Sent, form: Mapping[str, str]) -> None:
    ec2 = sent.operation.service_model.protocol == "ec2"
    left = dict(form)
    sent.params = _from_form(sent.operation.input_shape, left, "", ec2=ec2) or {}
    sent.unknown = sorted(left)


def _from_form(shape: Shape | None, left: dict[str, str], name: str, *, ec2: bool) -> Any:
    """Take what belongs to a shape out of a form's parameters; None where there is nothing."""
    match shape:
        case StructureShape():
            prefix = f"{name}." if name else ""
            members = {
                member: _from_form(each, left, prefix + wire_name(each, member, ec2=ec2), ec2=ec2)
                for member, each in shape.members.items()
                if _has(left, prefix + wire_name(each, member, ec2=ec2), each, ec2=ec2)
            }
            return {member: value for member, value in members.items() if value is not None} or None
        case ListShape():
            return _list_from_form(shape, left, name, ec2=ec2)
        case MapShape():
            return _map_from_form(shape, left, name, ec2=ec2)
        case _:
            return left.pop(name, None)


def _has(left: Mapping[str, str], name: str, shape: Shape, *, ec2: bool) -> bool:
    if isinstance(shape, ListShape):
        name = _list_prefix(shape, name, ec2=ec2).rpartition(".")[0] or name
    return any(key == name or key.startswith(f"{name}.") for key in left)


def _list_prefix(shape: ListShape, name: str, *, ec2: bool) -> str:
    if ec2:
        return name
    if shape.serialization.get("flattened"):
        own = shape.member.serialization.get("name")
        return ".".join([*name.split(".")[:-1], own]) if own else name
    return f"{name}.{shape.member.serialization.get('name', 'member')}"


def _list_from_form(shape: ListShape, left: dict[str, str], name: str, *, ec2: bool) -> list[Any] | None:
    if left.get(name) == "":
        del left[name]
        return []
    prefix = _list_prefix(shape, name, ec2=ec2)
    items: list[Any] = []
    while (item := _from_form(shape.member, left, f"{prefix}.{len(items) + 1}", ec2=ec2)) is not None:
        items.append(item)
    return items or None


def _map_from_form(shape: MapShape, left: dict[str, str], name: str, *, ec2: bool) -> dict[str, Any] | None:
    prefix = name if shape.serialization.get("flattened") else f"{name}.entry"
    key_name, value_name = shape.key.serialization.get("name", "key"), shape.value.serialization.get("name", "value")
    found: dict[str, Any] = {}
    while (key := left.pop(f"{prefix}.{len(found) + 1}.{key_name}", None)) is not None:
        found[key] = _from_form(shape.value, left, f"{prefix}.{len(found) + 1}.{value_name}", ec2=ec2)
    return found or None


def _from_json(shape: Shape | None, value: Any, name: str, unknown: list[str]) -> Any:
    match shape, value:
        case StructureShape(), dict():
            names = {wire_name(each, member): member for member, each in shape.members.items()}
            unknown += [f"{name}.{key}".lstrip(".") for key in value if key not in names]
            return {
                names[key]: _from_json(shape.members[names[key]], each, f"{name}.{key}".lstrip("."), unknown)
                for key, each in value.items()
                if key in names and each is not None
            }
        case ListShape(), list():
            return [
                _from_json(shape.member, each, f"{name}.{number + 1}", unknown) for number, each in enumerate(value)
            ]
        case MapShape(), dict():
            return {key: _from_json(shape.value, each, f"{name}.{key}", unknown) for key, each in value.items()}
        case _:
            return value


def _read_rest(
    sent: Sent, path: Mapping[str, Any], query: dict[str, str], headers: Mapping[str, str], body: bytes
) -> None:
    shape = sent.operation.input_shape
    if shape is None:
        return
    left = {name for name in query if not name.startswith(_QUERY_OF_S3)}
    headers = {name: value for name, value in headers.items() if name.startswith("x-amz-") or _is_modelled(shape, name)}
    left_headers = {name for name in headers if name.startswith("x-amz-") and not name.startswith(_SIGNING)}
    for member, each in shape.members.items():
        name = wire_name(each, member)
        match each.serialization.get("location"):
            case "uri" if name in path:
                sent.params[member] = path[name]
            case "querystring" if isinstance(each, MapShape):
                sent.params[member] = {key: query[key] for key in left}
                left.clear()
            case "querystring" if name in query:
                sent.params[member] = [query[name]] if isinstance(each, ListShape) else query[name]
                left.discard(name)
            case "header" if name.lower() in headers:
                sent.params[member] = headers[name.lower()]
                left_headers.discard(name.lower())
            case "headers":
                own = {key for key in left_headers if key.startswith(name.lower())}
                sent.params[member] = {key.removeprefix(name.lower()): headers[key] for key in own}
                left_headers -= own
            case _:
                pass
    _read_body(sent, shape, body)
    # What says which operation is meant ("?uploads", "?list-type=2") stands in the operation's own path.
    own_query = dict(parse_qsl(sent.operation.http["requestUri"].partition("?")[2], keep_blank_values=True))
    sent.unknown += sorted(left - set(own_query)) + sorted(
        name for name in left_headers if not name.startswith(_TRAILERS)
    )


def _is_modelled(shape: StructureShape, header: str) -> bool:
    return any(
        each.serialization.get("location") == "header" and wire_name(each, member).lower() == header
        for member, each in shape.members.items()
    )


def _read_body(sent: Sent, shape: StructureShape, body: bytes) -> None:
    payload = shape.serialization.get("payload")
    if not body.strip():
        return
    if payload:
        _read_payload(sent, shape.members[payload], payload, body)
    elif sent.operation.service_model.protocol == "rest-json":
        sent.of_text = False
        own = {wire_name(each, member): (member, each) for member, each in shape.members.items() if _is_in_body(each)}
        for key, value in json.loads(body).items():
            if key not in own:
                sent.unknown.append(key)
            elif value is not None:
                member, each = own[key]
                sent.params[member] = _from_json(each, value, key, sent.unknown)


def _read_payload(sent: Sent, shape: Shape, name: str, body: bytes) -> None:
    """Read the one member that is the whole body; the content of objects is nobody's to check."""
    if shape.type_name == "string":
        sent.params[name] = body.decode()
    elif shape.type_name != "blob":
        sent.params[name] = _from_xml(shape, ElementTree.fromstring(body), name, sent.unknown)


def _is_in_body(shape: Shape) -> bool:
    return "location" not in shape.serialization


def _from_xml(shape: Shape, node: ElementTree.Element, name: str, unknown: list[str]) -> Any:
    match shape:
        case StructureShape():
            return dict(_members_from_xml(shape, node, name, unknown))
        case ListShape():
            return [_from_xml(shape.member, each, f"{name}.{number + 1}", unknown) for number, each in enumerate(node)]
        case _:
            return node.text or ""


def _members_from_xml(
    shape: StructureShape, node: ElementTree.Element, name: str, unknown: list[str]
) -> Iterator[tuple[str, Any]]:
    children: dict[str, list[ElementTree.Element]] = {}
    for child in node:
        children.setdefault(child.tag.rpartition("}")[2], []).append(child)
    for member, each in shape.members.items():
        items = each.member if isinstance(each, ListShape) and each.serialization.get("flattened") else None
        own = wire_name(items if items is not None and "name" in items.serialization else each, member)
        if found := children.pop(own, []):
            values = [_from_xml(each if items is None else items, one, f"{name}.{own}", unknown) for one in found]
            yield member, values[0] if items is None else values
    unknown += [f"{name}.{tag}" for tag in children]
