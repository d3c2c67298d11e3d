"""What each template writes without a quoting filter, and which filters quote for its kind of file."""

from __future__ import annotations

from collections.abc import Iterator

import jinja2
from jinja2 import nodes

KINDS = {
    ".sh.j2": {"shell"},
    ".service.j2": {"systemd", "systemd_text", "systemd_executable"},
    ".timer.j2": {"systemd"},
    ".sbatch.j2": {"shell"},
    ".yaml.j2": {"tojson"},
    # It writes units as well.
    "deadline.sh.j2": {"shell", "systemd"},
}
"""The end of a template's name -> what quotes there: JSON's quotes keep no shell from reading a `$`."""

PLAIN: dict[str, set[str]] = {
    # Counts and seconds: made by kedge, of type int.
    "mount-volumes.sh.j2": {"wait"},
    "prepare.sh.j2": {"lifetime", "margin"},
    "unready.sh.j2": {"unready_seconds"},
    "kedge-unready.timer.j2": {"unready_seconds"},
    "end.sh.j2": {"refusals", "again", "taken"},
    # And patterns of disks' names, which are kedge's own.
    "scratch.sh.j2": {"wait", "names.local"},
    # And the script that ends the machine, rendered from a template of its own.
    "deadline.sh.j2": {"lifetime", "end"},
    # Constants of kedge's own: the machine's users and its folder.
    "kedge-boot.service.j2": {"root", "user"},
    "kedge-watch.service.j2": {"root", "user"},
    "kedge-run.service.j2": {"user", "stop_seconds"},
    "user-timer.service.j2": {"what", "command", "secrets", "limit"},
    "user-timer.timer.j2": {"what", "minutes"},
    # And text that was rendered from templates.
    "user-data.yaml.j2": {"admin", "user", "upgrades|join", "deadline|indent", "closing|indent", "text|indent"},
    # Quoted by whoever renders them: adapters/ssh/ssh_config.py, adapters/providers/local/sshd.py.
    "ssh-config.j2": {"host.alias", "keyword", "value"},
    "sshd_config.j2": {"host_key", "pid_file", "authorized_keys", "environment|join", "user"},
}

# Bound in the template by its own loop, where the names above say that it is meant.
_LOOPS = {"user-data.yaml.j2": {"text"}, "ssh-config.j2": {"host", "keyword", "value"}}


def written(node: nodes.Node) -> str:
    """Write an expression as PLAIN does: names, attributes, and the last filter."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return f"{written(node.node)}.{node.attr}"
    if isinstance(node, nodes.Filter) and node.node is not None:
        return f"{written(node.node)}|{node.name}"
    return f"<{type(node).__name__}>"


def unquoted(template: str, name: str) -> list[str]:
    """Name the values of a template that are written as they are, and names that it gives another meaning."""
    tree = jinja2.Environment(autoescape=True).parse(template)
    parts = [part for output in tree.find_all(nodes.Output) for part in output.nodes]
    plain = PLAIN.get(name, set())
    ends = [end for end in KINDS if name.endswith(end)]
    quoting = KINDS[max(ends, key=len)] if ends else set()
    found = [written(part) for part in parts if not _is_quoted(part, plain, quoting)]
    taken = {each.partition(".")[0].partition("|")[0] for each in plain} - _LOOPS.get(name, set())
    return found + [f"another {each}" for each in _bound(tree) if each in taken]


def _bound(tree: nodes.Template) -> Iterator[str]:
    """Yield the names to which a template itself gives a value."""
    yield from (each.name for each in tree.find_all(nodes.Name) if each.ctx in {"store", "param"})


def _is_quoted(node: nodes.Node, plain: set[str], quoting: set[str]) -> bool:
    if isinstance(node, nodes.TemplateData | nodes.Const):
        return True
    if isinstance(node, nodes.Filter) and node.name in quoting:
        return True
    if isinstance(node, nodes.Add):
        return _is_quoted(node.left, plain, quoting) and _is_quoted(node.right, plain, quoting)
    if isinstance(node, nodes.CondExpr) and node.expr2 is not None:
        return _is_quoted(node.expr1, plain, quoting) and _is_quoted(node.expr2, plain, quoting)
    return written(node) in plain
