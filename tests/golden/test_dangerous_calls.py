"""What turns data into code is called nowhere: read from the syntax trees, so that no comment can silence it.

Ruff's S rules (bandit's) run in `make lint`; a `noqa` silences them, and nothing silences this.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jinja2
import pytest
from jinja2 import nodes

ROOT = Path(__file__).parents[2]
PLACES = ("orchestrator", "trainer", "templates", "infra", "locks", "tasks.py")
SHELLS = {"sh", "bash", "/bin/sh", "/bin/bash", "dash", "zsh"}
RUNNERS = {
    "run",
    "Popen",
    "call",
    "check_call",
    "check_output",
    "execvp",
    "execv",
    "execve",
    "execvpe",
    "send",
    "lines",
}
UNPICKLING = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
SHELL_CALLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"}
UNCHECKED = {
    "ssl.CERT_NONE",
    "ssl._create_unverified_context",
    "paramiko.AutoAddPolicy",
    "paramiko.WarningPolicy",
    "tempfile.mktemp",
}

ALLOWED = {
    # A proxy command is shell text of the user's own, which OpenSSH hands to a shell likewise.
    ("orchestrator/adapters/remote/proxy.py", "text put together reaches a shell"),
    # Between the ranks of one run, which trust each other: torch has no other way to send an object.
    ("trainer/distributed.py", "objects that are pickled on their way"),
    # wandb's word for asking its server whether a key is valid.
    ("trainer/trackers.py", "a peer that isn't verified"),
}
"""Where a rule doesn't hold, and why."""


class Finding(NamedTuple):
    """A call, and what is wrong with it."""

    where: str
    what: str


def name_of(node: ast.AST) -> str:
    """Return `a.b.c` for attributes of names; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((given.value for given in call.keywords if given.arg == name), None)


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def is_put_together(node: ast.expr) -> bool:
    """Tell whether a text is made of parts: an f-string with values, `+`, `%`, `.format` or `.join`."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp):
        return is_put_together(node.left) or is_put_together(node.right) or not _is_fixed(node)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"format", "join"}


def _is_fixed(node: ast.expr) -> bool:
    """A constant, by its own text or by a name in capitals."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and _is_fixed(node.left) and _is_fixed(node.right)
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.isupper())


def shell_texts(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what argv lists give to a shell: the word after `sh -c`."""
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) >= 3:
        program, option, script = node.elts[:3]
        if isinstance(program, ast.Constant) and program.value in SHELLS and isinstance(option, ast.Constant):
            yield script


def check_imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import) and any(alias.name.split(".")[0] in UNPICKLING for alias in node.names):
        yield "a module that unpickles"
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNPICKLING:
        # The error alone: what torch raises is of this type.
        is_error = [alias.name for alias in node.names] == ["UnpicklingError"]
        yield from () if is_error else ("a module that unpickles",)


def check_shells(node: ast.AST) -> Iterator[str]:
    if any(is_put_together(script) for script in shell_texts(node)):
        yield "text put together reaches a shell"
    if not isinstance(node, ast.Call):
        return
    if (shell := keyword(node, "shell")) is not None and not is_constant(shell, False):
        yield "shell=True"
    if name_of(node.func) in SHELL_CALLS or name_of(node.func).startswith(("os.spawn", "os.posix_spawn")):
        yield "a call that starts a shell"
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called in RUNNERS and node.args and is_put_together(node.args[0]):
        yield "a command that is a text"


def check_text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and name_of(node.func) in {"eval", "exec", "compile", "__import__"}:
        yield "text that is run"


def check_loading(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called in {"extractall", "unpack_archive"}:
        yield "an archive that says where its files go"
    if name_of(node.func) == "torch.load" and not is_constant(keyword(node, "weights_only"), True):
        yield "torch.load without weights_only"
    if called in {"load", "load_all"} and name_of(node.func).startswith("yaml."):
        loader = keyword(node, "Loader") or (node.args[1] if len(node.args) > 1 else None)
        if loader is None or "Safe" not in ast.unparse(loader):
            yield "a YAML loader that makes objects"
    if is_constant(keyword(node, "allow_pickle"), True):
        yield "a file that may be a pickle"
    if called in {"all_gather_object", "broadcast_object_list", "scatter_object_list", "gather_object"}:
        yield "objects that are pickled on their way"


def check_trust(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute | ast.Name) and name_of(node) in UNCHECKED:
        yield "a peer that isn't verified"
    if isinstance(node, ast.Call) and is_constant(keyword(node, "verify"), False):
        yield "a peer that isn't verified"


CHECKS: tuple[Callable[[ast.AST], Iterator[str]], ...] = (
    check_imports,
    check_shells,
    check_text,
    check_loading,
    check_trust,
)


def findings(source: str, where: str = "here.py") -> list[Finding]:
    return [Finding(where, what) for node in ast.walk(ast.parse(source)) for check in CHECKS for what in check(node)]


def sources() -> list[Path]:
    found = [path for place in PLACES for path in ([ROOT / place] if place.endswith(".py") else _python(ROOT / place))]
    assert len(found) > 300
    return found


def _python(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def test_nothing_that_is_shipped_turns_data_into_code() -> None:
    """No shell from text, no pickle, no archive that unpacks itself, no peer that isn't verified."""
    found = {finding for path in sources() for finding in findings(path.read_text(), str(path.relative_to(ROOT)))}
    assert sorted(found - ALLOWED) == []
    assert sorted(ALLOWED - found) == [], "an exception that isn't needed any more"


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run(command, shell=True)",
        "subprocess.run(command, shell=wanted)",
        "subprocess.run(f'rm {name}')",
        "remote.run('rm ' + name)",
        "remote.run(['sh', '-c', f'rm {name}'])",
        "argv = ('bash', '-c', 'rm %s' % name)",
        "argv = ['sh', '-c', 'rm {}'.format(name), 'x']",
        "argv = ['sh', '-ec', START + name]",
        "os.system('ls')",
        "os.popen(command)",
        "tar.extractall(folder)",
        "shutil.unpack_archive(name)",
        "import pickle",
        "from pickle import loads, UnpicklingError",
        "import joblib.numpy_pickle",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "numpy.load(path, allow_pickle=True)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "eval(text)",
        "exec(text)",
        "context.verify_mode = ssl.CERT_NONE",
        "requests.get(url, verify=False)",
        "client.set_missing_host_key_policy(paramiko.AutoAddPolicy())",
        "dist.broadcast_object_list(box)",
    ],
)
def test_each_of_these_would_be_found(source: str) -> None:
    """The rules see what they are there for."""
    assert len(findings(source)) == 1, findings(source)


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run(['rm', f'{folder}/x'], shell=False)",
        "remote.run(['sh', '-c', SCRIPT, 'x', name])",
        "remote.run(['sh', '-c', ENTER + COMMAND, name])",
        "model.eval()",
        "re.compile(text)",
        "from pickle import UnpicklingError",
        "torch.load(path, map_location='cpu', weights_only=True)",
        "yaml.load(text, Loader=yaml.SafeLoader)",
    ],
)
def test_none_of_these_is_found(source: str) -> None:
    """They are how it is done."""
    assert findings(source) == []


QUOTING = {"shell", "systemd", "systemd_text", "systemd_executable", "ssh_config", "tojson", "int"}
PLAIN = {
    # Counts and seconds: made by kedge, of type int.
    *("wait", "lifetime", "margin", "unready_seconds", "refusals", "again", "taken", "stop_seconds"),
    # Constants of kedge's own: the machine's users, its folder, units, and patterns of disks' names.
    *("admin", "user", "root", "upgrades|join", "names.local"),
    # Text that was rendered from a template, with its values quoted there.
    *("end", "deadline|indent", "text|indent"),
    # Quoted by whoever renders them: see adapters/remote/sshconfig.py, adapters/providers/local/sshd.py.
    *("host.alias", "keyword", "value", "host_key", "pid_file", "authorized_keys", "environment|join"),
}


def written(node: nodes.Node) -> str:
    """Write an expression as PLAIN does: names, attributes, and the last filter."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return f"{written(node.node)}.{node.attr}"
    if isinstance(node, nodes.Filter) and node.node is not None:
        return f"{written(node.node)}|{node.name}"
    return f"<{type(node).__name__}>"


def is_quoted(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Filter) and node.name in QUOTING:
        return True
    if isinstance(node, nodes.Add):
        return is_quoted(node.left) and is_quoted(node.right)
    if isinstance(node, nodes.CondExpr):
        return is_quoted(node.expr1) and node.expr2 is not None and is_quoted(node.expr2)
    return isinstance(node, nodes.Const) or written(node) in PLAIN


def unquoted(template: str) -> list[str]:
    tree = jinja2.Environment(autoescape=True).parse(template)
    parts = [part for output in tree.find_all(nodes.Output) for part in output.nodes]
    return [written(part) for part in parts if not isinstance(part, nodes.TemplateData) and not is_quoted(part)]


def test_every_value_in_a_template_is_quoted_where_it_is_written() -> None:
    """In scripts, units and configurations: but for numbers and constants of kedge's own, each named above."""
    templates = sorted((ROOT / "templates").rglob("*.j2"))
    assert len(templates) > 15
    assert {path.name: found for path in templates if (found := unquoted(path.read_text()))} == {}


def test_a_value_that_is_not_quoted_is_found() -> None:
    """The rule sees what it is there for."""
    assert unquoted("echo {{ job.name }}") == ["job.name"]
    assert unquoted("echo {{ job.name | upper }}") == ["job.name|upper"]
    assert unquoted("echo {{ job.name | shell }} {{ 1 + 2 }}") == []
