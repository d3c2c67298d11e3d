"""Parses YAML into text values with line numbers.

A value is the text as written; its field decides what it means. So `on` is a fine name for a mode, a version
`1.10` keeps its zero, `1:30` isn't 90 and $0.10 isn't a binary fraction. Only null is distinguished from text. No
Python objects are constructed; size, depth and the expansion of aliases are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from orchestrator.adapters.jobfile.problems import KeyPath, Problem, dotted, quoted, refusal
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.printable import find_unprintable, require_printable

MAX_BYTES = 64 * 1024
MAX_DEPTH = 24
MAX_VALUES = 10_000

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "timestamp", "value", "merge")}
_NULL = f"{_TAG}null"
_MERGE = f"{_TAG}merge"
_AS_SHOWN = "write it as docs/job-file.md shows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed YAML file; its top level is a mapping.

    Attributes:
        value: nested dicts and lists of text and None.
        lines: the line of each key and item, counted from 1.
    """

    path: Path
    value: dict[str, Any]
    lines: dict[KeyPath, int]

    def line(self, key_path: KeyPath) -> int:
        """Return the line of a key, or of the nearest enclosing key that is in the file."""
        while key_path and key_path not in self.lines:
            key_path = key_path[:-1]
        return self.lines.get(key_path, 1)


def read_document(path: Path) -> Document:
    """Read a job file.

    Raises:
        BadRequestError: it can't be read, or isn't a YAML mapping within the limits.
    """
    reader = _Reader(path)
    value = reader.read(_read_text(path))
    return Document(path=path, value=value, lines=reader.lines)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        raise BadRequestError(f"{path} can't be read", why=reason, fix="name an existing job file with --job") from err
    if len(raw) > MAX_BYTES:
        raise BadRequestError(
            f"{path} is too large for a job file",
            why=f"it has more than {MAX_BYTES} bytes",
            fix="keep long scripts in files of their own, and call them from `run`",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = raw.count(b"\n", 0, err.start) + 1
        problem = Problem(line=line, what="this isn't UTF-8 text", fix="save it as UTF-8")
        raise refusal(path, [problem]) from err


class _Reader:
    """Converts YAML nodes to values, and counts them."""

    def __init__(self, path: Path) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._path = path
        self._values = 0
        self._depth = 0

    def read(self, text: str) -> dict[str, Any]:
        try:
            self._refuse_depth(text)
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as err:
            line = err.problem_mark.line + 1 if err.problem_mark else 1
            self._refuse(line, f"this isn't YAML: {err.problem or err.context}", err)
        except (yaml.YAMLError, ValueError, OverflowError) as err:
            # PyYAML lets errors of int() and chr() through: `%YAML 9999...`, "\UFFFFFFFF".
            self._refuse(1, f"this isn't YAML: {str(err).splitlines()[0]}", err)
        if not isinstance(node, yaml.MappingNode):
            self._refuse(1, "a job file is a mapping of keys to values")
        return self._mapping(node, ())

    def _refuse_depth(self, text: str) -> None:
        # Before compose(), which recurses. Events are lazy, so this stops at the first one that is too deep.
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                self._refuse(_line(event), f"nested more than {MAX_DEPTH} levels deep")

    def _value(self, node: yaml.Node, at: KeyPath) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._printable(node, at)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            with self._counted(node):
                return [self._item(child, (*at, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, at)
        return self._refuse(_line(node), f"the tag {quoted(node.tag)} means nothing in a job file")

    @contextmanager
    def _counted(self, node: yaml.CollectionNode) -> Iterator[None]:
        # Aliases can make a small text a huge tree, or an endless one.
        self._values += 1 + len(node.value)
        self._depth += 1
        if self._values > MAX_VALUES or self._depth > MAX_DEPTH:
            self._refuse(_line(node), "its aliases expand to too much")
        yield
        self._depth -= 1

    def _item(self, node: yaml.Node, at: KeyPath) -> Any:
        self.lines[at] = _line(node)
        return self._value(node, at)

    def _printable(self, node: yaml.ScalarNode, at: KeyPath) -> str | None:
        text = self._scalar(node)
        if text is not None and not _is_free(at):
            try:
                require_printable(text, f"`{dotted(at)}`: ", lines=True)
            except BadRequestError as err:
                self._refuse(_line(node), err.what, err, why=err.why, fix=err.fix)
        return text

    def _scalar(self, node: yaml.ScalarNode) -> str | None:
        if node.tag == _NULL:
            return None
        if node.tag not in _TEXT_TAGS:
            self._refuse(_line(node), f"the tag {quoted(node.tag)} means nothing in a job file")
        text = str(node.value)
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            self._refuse(_line(node), f"{quoted(text)} holds a character that no file or variable can hold")
        return text

    def _mapping(self, node: yaml.MappingNode, at: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        with self._counted(node):
            for key_node, value_node in node.value:
                if key_node.tag == _MERGE:
                    continue
                key = self._key(key_node, at)
                if key in values:
                    self._refuse(_line(key_node), f"`{dotted((*at, key))}` is written twice")
                self.lines.setdefault((*at, key), _line(key_node))
                values[key] = self._value(value_node, (*at, key))
            for merged in self._merged(node):
                values = self._mapping(merged, at) | values
        return values

    def _key(self, node: yaml.Node, at: KeyPath) -> str:
        key = self._scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if key is None:
            where = f"`{dotted(at)}`" if at else "the file"
            self._refuse(_line(node), f"{where} has a key that isn't text")
        at = (*at, key)
        if find_unprintable(key):
            fault = f"`{dotted(at)}` holds {find_unprintable(key)}, which can't be shown"
            self._refuse(_line(node), fault, fix="write it without that character")
        return key

    def _merged(self, node: yaml.MappingNode) -> Iterator[yaml.MappingNode]:
        # `<<: *base` and `<<: [*first, *second]`; keys beside it win, then the first mapping's.
        for key_node, value_node in node.value:
            if key_node.tag != _MERGE:
                continue
            is_list = isinstance(value_node, yaml.SequenceNode)
            for merged in value_node.value if is_list else [value_node]:
                if not isinstance(merged, yaml.MappingNode):
                    self._refuse(_line(merged), "`<<` takes a mapping, or a list of mappings")
                yield merged

    def _refuse(
        self, line: int, what: str, cause: Exception | None = None, *, why: str = "", fix: str = _AS_SHOWN
    ) -> NoReturn:
        raise refusal(self._path, [Problem(line=line, what=what, why=why, fix=fix)]) from cause


def _is_free(at: KeyPath) -> bool:
    """Tell whether a value may hold any characters: it is the user's script, and never part of a name."""
    for block in ("modes", "tasks"):
        at = at[2:] if at[:1] == (block,) else at
    return at in _SCRIPTS or (len(at) == 2 and at[0] in ("envs", "resume"))


_SCRIPTS: tuple[KeyPath, ...] = (("run",), ("setup",), ("resume",))


def _line(part: yaml.Node | yaml.Event) -> int:
    return part.start_mark.line + 1 if part.start_mark else 1
