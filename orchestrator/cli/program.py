"""The `kedge` program: invoke with our exit codes, optional positional arguments, and `-- passthrough`.

Plain `invoke` runs the same program (tasks.py hands over): invoke itself answers 1 to a flag that it doesn't
know, and drops what follows `--`.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.parser.parser import Parser
from invoke.program import Program

from orchestrator import __version__
from orchestrator.cli import account, acting, launching, looking, reaping, recovering, selftest
from orchestrator.cli.signals import exit_code, let_go_of_closed_streams, take_signals
from orchestrator.cli.streams import CleanStream, clean_streams
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.printable import require_printable

_UMASK = 0o077
"""What the program writes is the user's alone, whatever the shell says."""

namespace = Collection()
for _topic in (launching, looking, acting, recovering, reaping, account, selftest):
    for _task in Collection.from_module(_topic).tasks.values():
        namespace.add_task(_task)


class KedgeProgram(Program):
    """invoke's program, with kedge's manners."""

    passthrough: list[str]
    _parser: Parser | None = None

    def core_args(self) -> list[Argument]:
        """Accept invoke's flags for finding tasks too, so that `invoke -r FOLDER launch` goes on working."""
        return [*super().core_args(), *self.task_args()]

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:  # noqa: A002 - invoke's name
        """Run a command line and leave with its exit code."""
        clean_streams()
        words = list(sys.argv if argv is None else argv)
        cut = words.index("--") if "--" in words and "--complete" not in words else len(words)
        self.passthrough = words[cut + 1 :]
        take_signals()
        os.umask(_UMASK)
        try:
            code = self._run(words[:cut])
        except KeyboardInterrupt as err:
            code = exit_code(err)
        if exit:
            # On its way out the interpreter would look for garbage, too: a fifth of a short command's time.
            gc.freeze()
            sys.exit(code)

    def parse_tasks(self) -> None:
        """Give optional positional arguments their names, then parse as invoke does.

        Raises:
            ParseError: a flag or a value that can't be read.
        """
        self.core.unparsed[:] = name_positionals(self.core.unparsed, self._make_parser().contexts)
        try:
            super().parse_tasks()
        except ValueError as err:
            raise ParseError(f"a value can't be read: {err}") from err

    def _make_parser(self) -> Parser:
        """Make the parser once: invoke takes each task's help texts away when it makes its context.

        It knows the tasks that are named alone, because invoke copies all that it knows; completion needs them all.
        """
        if self._parser is None:
            contexts = self.collection.to_contexts()
            named = {*self.core.unparsed, self.args.help.value}
            if not self.args.complete.value:
                contexts = [context for context in contexts if named & {context.name, *context.aliases}]
            self._parser = Parser(initial=self.initial_context, contexts=contexts)
        return self._parser

    def update_config(self, merge: bool = True) -> None:
        """Hand what followed `--` to the tasks."""
        super().update_config(merge)
        self.config.update(passthrough=self.passthrough)

    def _run(self, words: list[str]) -> int:
        try:
            self._execute(words)
            sys.stdout.flush()
        except ParseError as err:
            return _complain(_explain(err, self))
        except KedgeError as err:
            return _complain(err)
        except Exit as err:
            if err.message:
                print(err.message, file=sys.stderr)
            return int(err.code)
        except BrokenPipeError:
            # `kedge logs | head`: the reader has enough, and the interpreter would complain when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as err:  # noqa: BLE001 - a traceback never reaches a user
            if isinstance(err, OSError) and err.errno == errno.EIO and let_go_of_closed_streams():
                # A write to a closed terminal may fail before its signal is seen.
                return 128 + signal.SIGHUP
            return _complain(_unexpected(err))
        return 0

    def _execute(self, words: list[str]) -> None:
        _require_printable_words(words)
        self.create_config()
        self.parse_core(words)
        self.parse_collection()
        self.parse_tasks()
        self.parse_cleanup()
        self.update_config()
        self.execute()


def name_positionals(words: list[str], contexts: Mapping[str, ParserContext]) -> list[str]:
    """Turn `status RUN --json` into `status --run RUN --json`.

    invoke has no optional positional arguments: a word that no flag takes belongs to the task's first argument.
    """
    named: list[str] = []
    task: ParserContext | None = None
    flag_wants_value = False
    for word in words:
        if flag_wants_value or task is None or word.startswith("-"):
            flag_wants_value = not flag_wants_value and task is not None and _wants_value(task, word)
        elif word not in contexts and (first := _first_argument(task)):
            named.append(f"--{first}")
        named.append(word)
        if not word.startswith("-") and word in contexts:
            task = contexts[word]
    return named


def take_over() -> None:
    """Run kedge's program in the place of plain `invoke` or `inv`, which has imported tasks.py."""
    if Path(sys.argv[0]).name in ("invoke", "inv"):
        make_program().run()


def make_program() -> KedgeProgram:
    """Make the program with all tasks."""
    return KedgeProgram(name="kedge", binary="kedge", version=__version__, namespace=namespace)


def main() -> None:
    """Run as `kedge`."""
    make_program().run()


def _wants_value(task: ParserContext, word: str) -> bool:
    # Short flags are aliases of the lexicon, which its `get` doesn't know.
    return word in task.flags and bool(task.flags[word].takes_value)


def _first_argument(task: ParserContext) -> str:
    return next(iter(task.args), "")


def _require_printable_words(words: list[str]) -> None:
    """Refuse names, paths and tags that can't be shown; the value of a variable is the command's affair."""
    for before, word in pairwise(words):
        is_variable = before == "--env" or word.startswith("--env=")
        flag, _, rest = word.partition("=") if word.startswith("--") else (before, "", word)
        require_printable(rest.partition("=")[0] if is_variable else word, f"{flag}: ")


def _explain(err: ParseError, program: KedgeProgram) -> BadRequestError:
    """Say what was not understood, and what comes nearest."""
    import difflib

    said = str(err)
    word = said.split("'")[1] if said.count("'") >= 2 else ""
    context = err.context
    known = [*(context.flags if context is not None else ()), *program.collection.task_names]
    near = difflib.get_close_matches(word, known, n=1)
    task = context.name if context is not None and context.name else ""
    return BadRequestError(
        said.rstrip("!"),
        why=f"did you mean {near[0]}?" if near else "no task and no flag is called so",
        fix=f"see `kedge --help {task}`" if task else "see `kedge --list`",
    )


def _unexpected(err: Exception) -> KedgeError:
    """Keep what a bug report needs in a file, and say where."""
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
        why="this is a mistake in kedge, or in something that it needs; what exists is in the ledger all the same",
        fix=f"look with `kedge status` and `kedge doctor`; the details are in {file.name}",
    )


def _complain(err: KedgeError) -> int:
    sys.stdout.flush()
    print(f"error: {err}", file=sys.stderr)
    return err.exit_code
