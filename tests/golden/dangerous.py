"""Rules on syntax trees: what turns data into code, whatever it was imported as.

They don't follow values through assignments: instead a script for a shell has to be a constant where it is given.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

SHELLS = {"sh", "bash", "dash", "ksh", "zsh"}
INTERPRETERS = {"python", "python3", "perl", "ruby", "node"}
RUNNERS = {
    *("run", "Popen", "call", "check_call", "check_output", "send", "lines", "start_process"),
    *("execv", "execve", "execvp", "execvpe"),
}
UNPICKLING = {
    *("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"),
    *("multiprocessing.connection", "multiprocessing.managers", "multiprocessing.reduction"),
}
SHELL_CALLS = {
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"),
    "asyncio.create_subprocess_shell",
}
TEXT_CALLS = {
    *("eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec", "builtins.compile"),
    *("runpy.run_path", "runpy.run_module", "code.interact", "importlib.util.spec_from_file_location"),
    *("importlib.machinery.SourceFileLoader", "builtins.__import__"),
}
DYNAMIC = {"os", "subprocess", "builtins", "pickle", "torch", "yaml", "shutil"}
"""Modules whose functions are named, so that these rules see which they are."""

UNPACKING = {"extractall", "extract", "unpack_archive"}
MAKING = {"unsafe_load", "unsafe_load_all", "full_load", "full_load_all"}
READERS = {"read_pickle", "load_pickle"}
COLLECTIVES = {"all_gather_object", "broadcast_object_list", "scatter_object_list", "gather_object"}
UNCHECKED = {"CERT_NONE", "_create_unverified_context", "AutoAddPolicy", "WarningPolicy", "mktemp"}
UNCHECKED_OPTIONS = ("stricthostkeychecking=no", "stricthostkeychecking no", "userknownhostsfile=/dev/null")


class Finding(NamedTuple):
    """Where something is, and what is wrong with it."""

    where: str
    what: str


class Module:
    """A module's tree, and what its names stand for."""

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self._stands_for: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                self._stands_for |= {alias.asname: alias.name for alias in node.names if alias.asname}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                self._stands_for |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}

    def name_of(self, node: ast.AST) -> str:
        """Return `a.b.c` for attributes of names, as they were called where they come from; empty for anything else."""
        if isinstance(node, ast.Name):
            return self._stands_for.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.name_of(node.value)}.{node.attr}"
        return ""


def last_of(name: str) -> str:
    return name.rpartition(".")[2]


def called(call: ast.Call) -> str:
    """Return the last word of what is called, whosever method it is."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((given.value for given in call.keywords if given.arg == name), None)


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def is_fixed(node: ast.expr) -> bool:
    """Tell whether a text is a constant, by itself or by a name in capitals, or made of nothing else."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and is_fixed(node.left) and is_fixed(node.right)
    if isinstance(node, ast.IfExp):
        return is_fixed(node.body) and is_fixed(node.orelse)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return isinstance(node, ast.Constant) or name.isupper()


def is_put_together(node: ast.expr) -> bool:
    """Tell whether a text is made of parts: an f-string with values, `+`, `%`, `.format` or `.join`."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp):
        return is_put_together(node.left) or is_put_together(node.right) or not _may_be_list(node)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"format", "join"}


def _may_be_list(node: ast.BinOp) -> bool:
    return is_fixed(node) or any(isinstance(side, ast.List | ast.Tuple) for side in (node.left, node.right))


def is_interpreter(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.rpartition("/")[2] in SHELLS | INTERPRETERS
    return module.name_of(node) == "sys.executable"


def scripts(module: Module, words: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield what a command gives to a shell, or to another interpreter: the word after its option `-c`."""
    for at, word in enumerate(words):
        if not is_interpreter(module, word):
            continue
        for option, script in zip(words[at + 1 :], words[at + 2 :], strict=False):
            if not (isinstance(option, ast.Constant) and str(option.value).startswith("-")):
                break
            if "c" in str(option.value).lstrip("-") and not str(option.value).startswith("--"):
                yield script
                break


def check_imports(module: Module, node: ast.AST) -> Iterator[str]:
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        # The error alone: what torch raises is of this type.
        is_error = [alias.name for alias in node.names] == ["UnpicklingError"]
        names = [] if is_error else [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    elif isinstance(node, ast.Call) and module.name_of(node.func) == "importlib.import_module" and node.args:
        names = [str(node.args[0].value)] if isinstance(node.args[0], ast.Constant) else []
    if any(name == each or name.startswith(f"{each}.") for name in names for each in UNPICKLING):
        yield "a module that unpickles"


def check_commands(module: Module, node: ast.AST) -> Iterator[str]:
    words = node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []
    if not all(is_fixed(script) for script in scripts(module, words)):
        yield "text put together reaches a shell"
    if isinstance(node, ast.Call):
        runs = called(node) in RUNNERS or module.name_of(node.func).startswith("subprocess.")
        if runs and node.args and is_put_together(node.args[0]):
            yield "a command that is a text"


def check_shells(module: Module, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        if any(isinstance(key, ast.Constant) and key.value == "shell" and is_constant(to, True) for key, to in pairs):
            yield "shell=True"
    if not isinstance(node, ast.Call):
        return
    name = module.name_of(node.func)
    if (shell := keyword(node, "shell")) is not None and not is_constant(shell, False):
        yield "shell=True"
    if name.startswith("subprocess.") and any(given.arg is None for given in node.keywords):
        yield "options that can't be seen"
    is_shell = called(node) in {"system", "popen"} and name != "platform.system"
    if is_shell or name in SHELL_CALLS or name.startswith(("os.spawn", "os.posix_spawn")):
        yield "a call that starts a shell"


def check_text(module: Module, node: ast.AST) -> Iterator[str]:
    # The name alone as well: under another one it would not be seen.
    is_read = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    if is_read and module.name_of(node) in TEXT_CALLS:
        yield "text that is run"
    if (
        isinstance(node, ast.Call)
        and module.name_of(node.func) == "getattr"
        and module.name_of(node.args[0]) in DYNAMIC
    ):
        wanted = node.args[1]
        # A number of the system's, which not every one has.
        if not (isinstance(wanted, ast.Constant) and str(wanted.value).isupper()):
            yield "a function that can't be seen"


def check_archives(module: Module, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and last_of(module.name_of(node.func) or called(node)) in UNPACKING:
        yield "an archive that says where its files go"


def check_loading(module: Module, node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    name = module.name_of(node.func)
    last = last_of(name) or called(node)
    if name.startswith("torch.") and last == "load" and not is_constant(keyword(node, "weights_only"), True):
        yield "torch.load without weights_only"
    if name in {"yaml.load", "yaml.load_all"}:
        loader = keyword(node, "Loader") or (node.args[1] if len(node.args) > 1 else None)
        if loader is None or "Safe" not in ast.unparse(loader):
            yield "a YAML loader that makes objects"
    if name.startswith("yaml.") and last in MAKING:
        yield "a YAML loader that makes objects"
    allowed = keyword(node, "allow_pickle")
    if last in READERS or (allowed is not None and not is_constant(allowed, False)):
        yield "a file that may be a pickle"
    if last in COLLECTIVES:
        yield "objects that are pickled on their way"


def check_trust(module: Module, node: ast.AST) -> Iterator[str]:
    if _is_unchecked(module, node):
        yield "a peer that isn't verified"


def _is_unchecked(module: Module, node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute | ast.Name):
        return last_of(module.name_of(node)) in UNCHECKED
    if isinstance(node, ast.Call):
        verify = keyword(node, "verify")
        return isinstance(verify, ast.Constant) and not verify.value
    if isinstance(node, ast.Assign):
        names = {target.attr for target in node.targets if isinstance(target, ast.Attribute)}
        return "check_hostname" in names and is_constant(node.value, False)
    return isinstance(node, ast.Constant) and str(node.value).lower().startswith(UNCHECKED_OPTIONS)


CHECKS: tuple[Callable[[Module, ast.AST], Iterator[str]], ...] = (
    check_imports,
    check_commands,
    check_shells,
    check_text,
    check_archives,
    check_loading,
    check_trust,
)


def findings(source: str, where: str = "here.py") -> list[Finding]:
    module = Module(source)
    return [Finding(where, what) for node in ast.walk(module.tree) for check in CHECKS for what in check(module, node)]
