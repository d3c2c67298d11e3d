"""The agent's command line: maps each verb to its module, which is imported only when it is used."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from .base.errors import AgentError
from .base.layout import Layout


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
    "install": Verb("boot.install:execute", "write the launchers"),
    "boot": Verb("boot.boot:execute", "carry out boot.json, and report when the machine is ready"),
    "burn-in": Verb("boot.burn_in:execute", "check that the GPUs compute and store data correctly", "configure"),
    "watch": Verb("watch.watch:execute", "run the machine's daemon: heartbeat, samples, uploads, deadline"),
    "start": Verb("run.start:execute", "start the run whose configuration is on standard input"),
    "run": Verb("run.runner:execute", "run the command to its end, in the foreground"),
    "stop": Verb("run.control:stop", "let the command checkpoint and exit", "configure_stop"),
    "kill": Verb("run.control:kill", "end the command now"),
    "notice": Verb("run.control:notice", "ask the command to checkpoint and continue", "configure_notice"),
    "report": Verb("watch.report:execute", "print the machine's full status, as JSON"),
    "follow": Verb("watch.follow:execute", "print log and reports as they come, as JSON", "configure"),
    "receive-code": Verb("code.receive:execute", "install the code from standard input", "configure"),
    "pull-code": Verb("code.pull:execute", "install the code from the store", "configure"),
    "fetch-data": Verb("data.sources.fetching:execute", "download the run's data sources"),
    "pull-data": Verb("data.mirror:execute", "mirror a data set from the store", "configure"),
    "code-hash": Verb("code.receive:print_hash", "print the content hash of the code in place"),
    "manifest": Verb("results.listing:execute", "list the results, as JSON"),
    "attach": Verb("run.attach:execute", "show the command's terminal"),
    "cost": Verb("watch.cost:execute", "print time and money since the machine was created"),
    "rekey": Verb("boot.rekey:execute", "make an SSH host key and print it, or retire the first one", "configure"),
    "end": Verb("watch.end_machine:execute", "end the machine now"),
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
    # Skips the interpreter's garbage collection at exit, because somebody waits for the answer.
    gc.freeze()
    return exit_code


def _parse_verb(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    lines = "\n".join(f"  {name:13} {verb.about}" for name, verb in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="kedge-agent",
        description="The part of kedge that runs on a machine.",
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
