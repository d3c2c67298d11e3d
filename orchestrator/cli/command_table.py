"""All commands as data, for completion. Loads invoke and the tasks."""

from __future__ import annotations

from typing import Any

from orchestrator.cli.command_line import flags_of
from orchestrator.cli.help import GROUPS, summary
from orchestrator.cli.program import namespace


def command_table() -> dict[str, dict[str, Any]]:
    """Describe every command, in the order of a run's life."""
    return {name: _describe(name) for names in GROUPS.values() for name in names}


def _describe(name: str) -> dict[str, Any]:
    arguments = list(flags_of(namespace[name], name).args.values())
    flags = [
        {
            "names": [f"--{argument.names[0]}", *(f"-{short}" for short in argument.names[1:])],
            "says": argument.help or "",
            "takes_value": argument.takes_value,
        }
        for argument in arguments
    ]
    flags.append({"names": ["--help", "-h"], "says": "say what it does", "takes_value": False})
    first = arguments[0] if arguments else None
    return {
        "says": summary(namespace, name),
        "flags": flags,
        "first": f"--{first.names[0]}" if first is not None and first.kind is str else "",
    }
