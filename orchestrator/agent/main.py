"""The agent's command line: maps each verb to its module, which is imported only when it is used."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .base.errors import AgentError
from .base.layout import Layout
from .base.record import Record

if TYPE_CHECKING:
    import argparse


class Verb(Record):
    """One verb.

    Attributes:
        execute: `module:function`.
        configure: the function in the same module that adds its options; empty if it has none.
        is_plain: without options it is called without their values, which saves the import of argparse.
    """

    execute: str
    about: str
    configure: str = ""
    is_plain: bool = False


VERBS = {
    "install": Verb("boot.install:execute", "write the launchers", "configure"),
    "boot": Verb("boot.boot:execute", "carry out boot.json, and report when the machine is ready"),
    "burn-in": Verb("boot.burn_in:execute", "check that the GPUs compute and store data correctly", "configure"),
    "watch": Verb("watch.watch:execute", "run the machine's daemon: heartbeat, samples, uploads, deadline"),
    "start": Verb(
        "run.start:execute", "start the run whose configuration is on standard input", "configure", is_plain=True
    ),
    "run": Verb("run.entry:execute", "run a task's command to its end, in the foreground", "configure", is_plain=True),
    "stop": Verb("run.control:stop", "let commands checkpoint and exit", "configure_stop"),
    "kill": Verb("run.control:kill", "end commands now", "configure_tasks", is_plain=True),
    "notice": Verb("run.control:notice", "ask commands to checkpoint and continue", "configure_notice"),
    "report": Verb("watch.report:execute", "print the machine's full status, as JSON"),
    "follow": Verb("watch.follow:execute", "print log and reports as they come, as JSON", "configure"),
    "receive-code": Verb("code.receive:execute", "install the code from standard input", "configure"),
    "pull-code": Verb("code.pull:execute", "install the code from the store", "configure"),
    "fetch-data": Verb("data.sources.fetching:execute", "download the run's data sources"),
    "pull-data": Verb("data.mirror:execute", "mirror a data set from the store", "configure"),
    "code-hash": Verb("code.receive:print_hash", "print the content hash of the code in place"),
    "newest": Verb(
        "results.checkpoint_order:print_newest", "print the newest complete checkpoint of a folder", "configure_newest"
    ),
    "manifest": Verb("results.listing:execute", "list the results, as JSON"),
    "attach": Verb("run.attach:execute", "show a command's terminal", "configure", is_plain=True),
    "cost": Verb("watch.cost:execute", "print time and money since the machine was created"),
    "rekey": Verb("boot.rekey:execute", "make an SSH host key and print it, or retire the first one", "configure"),
    "extend": Verb("watch.extend:execute", "move the machine's deadline", "configure"),
    "end": Verb("watch.end_machine:execute", "end the machine now"),
}


def main(argv: Sequence[str]) -> int:
    """Carry out one verb and return the exit code."""
    # The imports make objects, but no garbage.
    gc.disable()
    root, name, options = _parse_verb(argv)
    verb = VERBS[name]
    module_name, function_name = verb.execute.split(":")
    module = importlib.import_module(f".{module_name}", __package__)
    arguments: list[argparse.Namespace] = []
    if (verb.configure and not verb.is_plain) or options:
        import argparse  # noqa: PLC0415 - most calls have no options

        parser = argparse.ArgumentParser(prog=f"kedge-agent {name}", description=verb.about)
        if verb.configure:
            getattr(module, verb.configure)(parser)
        parsed = parser.parse_args(options)
        arguments = [parsed] if verb.configure else []
    execute: Callable[..., int] = getattr(module, function_name)
    gc.freeze()
    gc.enable()
    try:
        return execute(Layout(root.absolute()), *arguments)
    except AgentError as err:
        sys.stderr.write(f"kedge-agent: {err}\n")
        return err.exit_code
    finally:
        # Skips the interpreter's garbage collection at exit, because somebody waits for the answer.
        gc.freeze()


def _parse_verb(argv: Sequence[str]) -> tuple[Path, str, list[str]]:
    """Return the root, the verb and its options."""
    # How the launchers call it.
    if len(argv) > 1 and argv[0].startswith("--root=") and argv[1] in VERBS:
        return Path(argv[0].removeprefix("--root=")), argv[1], list(argv[2:])
    import argparse  # noqa: PLC0415

    lines = "\n".join(f"  {name:13} {verb.about}" for name, verb in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="kedge-agent",
        description="The part of kedge that runs on a machine.",
        epilog=f"verbs:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--root", type=Path, default=Path.cwd(), help=argparse.SUPPRESS)
    parser.add_argument("verb", choices=VERBS, metavar="VERB")
    parser.add_argument("options", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    return args.root, args.verb, args.options
