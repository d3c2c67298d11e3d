"""The agent's command line: a verb, and the module that carries it out, imported when it is asked for."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from .errors import AgentError
from .layout import Layout


class Verb(NamedTuple):
    """One verb.

    Attributes:
        execute: `module:function`.
        configure: the function in the same module that adds its arguments; empty for none.
    """

    execute: str
    about: str
    configure: str = ""


VERBS = {
    "install": Verb("install:execute", "write the launchers"),
    "boot": Verb("boot:execute", "do what boot.json says, and say that the machine is ready"),
    "burn-in": Verb("burn_in:execute", "check that the GPUs compute and remember what they should", "configure"),
    "watch": Verb("watch:execute", "be the machine's daemon: heartbeat, samples, shipping, deadline"),
    "start": Verb("launch:execute", "start the run that standard input describes"),
    "run": Verb("runner:execute", "run the command to its end, in the foreground"),
    "stop": Verb("control:stop", "let the command checkpoint and exit", "configure_stop"),
    "kill": Verb("control:kill", "end the command now"),
    "notice": Verb("control:notice", "tell the command to checkpoint and go on", "configure_notice"),
    "report": Verb("report:execute", "print all that is known, as JSON"),
    "follow": Verb("follow:execute", "print log and reports as they come, as JSON", "configure"),
    "receive-code": Verb("receive:execute", "put the code in place that standard input holds", "configure"),
    "pull-code": Verb("pull:execute", "put the code in place that the store holds", "configure"),
    "fetch-data": Verb("sources.fetching:execute", "fetch the data that the run takes from elsewhere"),
    "pull-data": Verb("datasets:execute", "mirror a data set from the store", "configure"),
    "code-hash": Verb("receive:print_hash", "print the content hash of the code in place"),
    "manifest": Verb("results:execute", "list the results, as JSON"),
    "attach": Verb("attach:execute", "show the command's terminal"),
    "cost": Verb("cost:execute", "print time and money since the machine was created"),
    "rekey": Verb("rekey:execute", "make an SSH host key and print it, or retire the first one", "configure"),
    "end": Verb("ending:execute", "end the machine now"),
}


def main(argv: Sequence[str]) -> int:
    """Carry out one verb and return the exit code."""
    args, rest = _parse_verb(argv)
    verb = VERBS[args.verb]
    module_name, function_name = verb.execute.split(":")
    module = importlib.import_module(f".{module_name}", __package__)
    parser = argparse.ArgumentParser(prog=f"kedge-agent {args.verb}", description=verb.about)
    if args.verb == "install":
        parser.add_argument("--root", type=Path, default=args.root, dest="root")
    if verb.configure:
        getattr(module, verb.configure)(parser)
    arguments = parser.parse_args(rest)
    root: Path = getattr(arguments, "root", args.root)
    execute: Callable[[Layout, argparse.Namespace], int] = getattr(module, function_name)
    exit_code = _execute(execute, Layout(root.absolute()), arguments)
    # On its way out the interpreter would look for garbage, while somebody waits for the answer.
    gc.freeze()
    return exit_code


def _parse_verb(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    lines = "\n".join(f"  {name:13} {verb.about}" for name, verb in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="kedge-agent",
        description="What runs on a machine of kedge's.",
        epilog=f"verbs:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--root", type=Path, default=Path.cwd(), help=argparse.SUPPRESS)
    parser.add_argument("verb", choices=VERBS, metavar="VERB")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    return args, args.rest


def _execute(execute: Callable[[Layout, argparse.Namespace], int], layout: Layout, args: argparse.Namespace) -> int:
    try:
        return execute(layout, args)
    except AgentError as err:
        sys.stderr.write(f"kedge-agent: {err}\n")
        return err.exit_code
