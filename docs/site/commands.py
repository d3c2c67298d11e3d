"""Renders the command reference from the tasks: what `kedge help COMMAND` says of each, as a page."""

from __future__ import annotations

from invoke.collection import Collection

from docs.site.tables import table
from orchestrator.cli.help import GROUPS, CommandHelp, describe_command

_HEAD = """\
# Commands

Every command with its options and examples, as `kedge help COMMAND` prints them. A command that acts on a run takes the
only live run of this folder's job if you name none. [JSON output](json.md) describes what `--json` prints,
[troubleshooting](troubleshooting.md#exit-codes) the exit codes. This page is generated from the program.
"""


def render_commands(tasks: Collection) -> str:
    """Return the page: all commands, in the order in which a run meets them."""
    parts = [_HEAD]
    for group, names in GROUPS.items():
        helps = [describe_command(tasks, name) for name in names]
        parts.append(f"\n## {group}\n\n")
        parts.append(
            table(("command", "what it does"), ((f"[`{each.name}`](#{each.name})", each.says[0]) for each in helps))
        )
        parts += [_render(each) for each in helps]
    return "".join(parts)


def _render(command: CommandHelp) -> str:
    says = "\n\n".join(command.says)
    options = table(("option", "what it does"), ((f"`{spec}`", text) for spec, text in command.options))
    examples = "\n".join(command.examples)
    return (
        f"\n### {command.name}\n\n```text\n{command.usage}\n```\n\n{says}\n\n{options}\n```console\n{examples}\n```\n"
    )
