"""The `kedge` program: runs one command, and turns every failure into an error message and an exit code.

Plain `invoke` in the checkout runs the same program (tasks.py hands over), so the same flags mean the same there.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from invoke.collection import Collection
from invoke.config import Config
from invoke.context import Context
from invoke.exceptions import Exit

from orchestrator import __version__
from orchestrator.cli.command_line import Want, read_command_line, require_passing_on
from orchestrator.cli.help import command_help, listing, overview
from orchestrator.cli.tasks import (
    account,
    acting,
    entering,
    launching,
    looking,
    preparing,
    reaping,
    recovering,
    selftest,
    starting,
    volumes,
)
from orchestrator.cli.terminal.signals import exit_code, let_go_of_closed_streams, outlast_signals, take_signals
from orchestrator.cli.terminal.streams import CleanStream, clean_streams
from orchestrator.core.errors import KedgeError
from orchestrator.core.values.printable import require_printable

_UMASK = 0o077
"""The umask: files that the program writes are private to the user, whatever the shell has set."""

namespace = Collection()
for _topic in (
    launching,
    preparing,
    looking,
    starting,
    acting,
    entering,
    recovering,
    reaping,
    volumes,
    account,
    selftest,
):
    for _task in Collection.from_module(_topic).tasks.values():
        namespace.add_task(_task)


class KedgeProgram:
    """Runs one command for each command line."""

    def __init__(self, tasks: Collection = namespace, *, by_invoke: bool = False) -> None:
        """Create the program.

        Args:
            tasks: the commands.
            by_invoke: it replaces plain `invoke`, whose flags for finding tasks it skips.
        """
        self._tasks = tasks
        self._by_invoke = by_invoke

    def run(self, argv: Sequence[str] | None = None) -> None:
        """Run a command line and exit with its exit code."""
        clean_streams()
        words = list(sys.argv if argv is None else argv)[1:]
        take_signals()
        os.umask(_UMASK)
        try:
            code = self._run(words)
        except KeyboardInterrupt as err:
            code = exit_code(err)
        outlast_signals()
        # The interpreter would also collect garbage at exit, which takes a fifth of a short command's time.
        gc.freeze()
        sys.exit(code)

    def _run(self, words: list[str]) -> int:
        try:
            self._execute(words)
            sys.stdout.flush()
        except KedgeError as err:
            return _complain(err)
        except Exit as err:
            outlast_signals()
            if err.message:
                print(err.message, file=sys.stderr)
            return int(err.code)
        except BrokenPipeError:
            # `kedge logs | head`: the reader has closed the pipe, and the interpreter would complain when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as err:  # noqa: BLE001 - a traceback never reaches a user
            if isinstance(err, OSError) and err.errno == errno.EIO and let_go_of_closed_streams():
                # A read, or a write of bytes, may fail before the signal of the closed terminal arrives.
                return 128 + signal.SIGHUP
            return _complain(_unexpected(err))
        return 0

    def _execute(self, words: list[str]) -> None:
        cut = words.index("--") if "--" in words else len(words)
        _require_printable_words(["kedge", *words[:cut]])
        asked = read_command_line(words[:cut], self._tasks, by_invoke=self._by_invoke)
        if cut < len(words):
            require_passing_on(asked.command)
        if asked.want is Want.VERSION:
            print(f"kedge {__version__}")
        elif asked.want is Want.LIST:
            print(listing(self._tasks))
        elif asked.want is Want.HELP:
            print(command_help(self._tasks, asked.command) if asked.command else overview(self._tasks))
        else:
            # `lazy`: the user's own invoke.yaml is for other programs.
            context = Context(Config(overrides={"passthrough": words[cut + 1 :]}, lazy=True))
            self._tasks[asked.command](context, **asked.values)


def take_over() -> None:
    """Run kedge's program instead of plain `invoke` or `inv`, which has imported tasks.py.

    Except for completion, which invoke does by itself with the names of the tasks.
    """
    words = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    if Path(sys.argv[0]).name in ("invoke", "inv") and "--complete" not in words:
        KedgeProgram(by_invoke=True).run()


def main() -> None:
    """Run as `kedge`."""
    KedgeProgram().run()


def _require_printable_words(words: list[str]) -> None:
    """Refuse names, paths and tags that can't be shown; values of variables are left to the command."""
    for before, word in pairwise(words):
        is_variable = before == "--env" or word.startswith("--env=")
        flag, _, rest = word.partition("=") if word.startswith("--") else (before, "", word)
        require_printable(rest.partition("=")[0] if is_variable else word, f"{flag}: ")


def _unexpected(err: Exception) -> KedgeError:
    """Write what a bug report needs to a file, and make an error that names it."""
    import tempfile
    import traceback

    if isinstance(err, OSError):
        return KedgeError(
            f"{err.strerror or err}", why=f"{err.filename}" if err.filename else "", fix="see `kedge doctor`"
        )
    with tempfile.NamedTemporaryFile("w", prefix="kedge-crash-", suffix=".txt", delete=False) as file:
        traceback.print_exception(err, file=CleanStream(file))
    return KedgeError(
        f"kedge failed: {type(err).__name__}: {err}",
        why="this is a bug in kedge, or in something that it uses; the ledger still has everything that exists",
        fix=f"look with `kedge status` and `kedge doctor`; the details are in {file.name}",
    )


def _complain(err: KedgeError) -> int:
    """Print a failure and return its exit code, which stays the same if nobody can read it any more."""
    outlast_signals()
    sys.stdout.flush()
    print(f"error: {err}", file=sys.stderr)
    return err.exit_code
