"""No code turns data into code; checked on syntax trees, so that no comment can silence it.

Ruff's S rules (bandit's) run in `make lint`; a `noqa` silences them, and nothing silences this.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.dangerous import findings
from tests.golden.template_quoting import unquoted

ROOT = Path(__file__).parents[2]
PLACES = ("orchestrator", "trainer", "kedge_trainer", "templates", "infra", "locks", "tasks.py")
ALLOWED = {
    # A proxy command is shell text of the user's own, which OpenSSH hands to a shell likewise.
    ("orchestrator/adapters/ssh/proxy.py", "text put together reaches a shell"),
    # Between the ranks of one run, which trust each other: torch has no other way to send an object.
    ("trainer/group/distributed.py", "objects that are pickled on their way"),
    # The recipe's file, which the user names on the command line.
    ("trainer/recipes/_loading.py", "text that is run"),
    # The user's model, a Python file that the user names.
    ("trainer/recipes/lora.py", "text that is run"),
    # An error that was pickled on the line itself, to see whether it survives the way from a loader's worker.
    ("trainer/data/workers.py", "a module that unpickles"),
    # wandb's word for asking its server whether a key is valid.
    ("trainer/report/trackers.py", "a peer that isn't verified"),
}
"""Where a rule doesn't hold, and why."""


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
        "from os import system\nsystem(text)",
        "import os as o\no.system(text)",
        "getattr(os, 'system')(text)",
        "subprocess.run(argv, **{'shell': True})",
        "subprocess.run(argv, **options)",
        "from subprocess import Popen\nPopen(f'rm {name}')",
        "asyncio.create_subprocess_shell(text)",
        "os.execl('/bin/sh', 'sh', '-c', f'rm {name}')",
        "argv = ['/usr/bin/bash', '-c', f'rm {name}']",
        "argv = ['env', 'sh', '-c', f'rm {name}']",
        "argv = ['sh', '-x', '-c', f'rm {name}']",
        "argv = [*PREFIX, 'sh', '-c', f'rm {name}']",
        "argv = [sys.executable, '-c', f'import {name}']",
        "argv = ['sh', '-c', script(name)]",
        "import _pickle",
        "importlib.import_module('pickle')",
        "from torch import load\nload(path)",
        "torch.serialization.load(path)",
        "torch.jit.load(path)",
        "numpy.load(path, allow_pickle=flag)",
        "pandas.read_pickle(path)",
        "yaml.unsafe_load(text)",
        "yaml.full_load(text)",
        "from yaml import load\nload(text)",
        "builtins.exec(text)",
        "run_path = runpy.run_path(path)",
        "importlib.util.spec_from_file_location('x', path)",
        "from shutil import unpack_archive\nunpack_archive(path)",
        "tar.extract(member)",
        "context.check_hostname = False",
        "from ssl import CERT_NONE\ncontext.verify_mode = CERT_NONE",
        "from paramiko import AutoAddPolicy\nclient.set_missing_host_key_policy(AutoAddPolicy())",
        "paramiko.client.AutoAddPolicy()",
        "options = ['-o', 'StrictHostKeyChecking=no']",
        "requests.get(url, verify='')",
        "from tempfile import mktemp\nmktemp()",
        "import multiprocessing.connection",
        "ctypes.CDLL(None).system(text)",
        "code = eval",
        "text = f'rm {name}'\nrun(['sh', '-c', text])",
        "subprocess.run(['ls'], **{'cwd': '/'})",
    ],
)
def test_dangerous_code_is_found(source: str) -> None:
    """Each of these examples breaks a rule."""
    assert findings(source)


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run(['rm', f'{folder}/x'], shell=False)",
        "remote.run(['sh', '-c', SCRIPT, 'x', name])",
        "remote.run(['sh', '-c', ENTER + COMMAND, name])",
        "remote.run(['sh', '-c', ENTER + (ONE if words else OTHER), name])",
        "model.eval()",
        "class Config:\n    compile: bool = False",
        "platform.system()",
        "getattr(os, 'O_DIRECT', 0)",
        "argv = ['python3', '-m', name, '-c', f'{folder}/x']",
        "re.compile(text)",
        "from pickle import UnpicklingError",
        "torch.load(path, map_location='cpu', weights_only=True)",
        "yaml.load(text, Loader=yaml.SafeLoader)",
    ],
)
def test_safe_code_is_not_reported(source: str) -> None:
    """Each of these examples is how to do it."""
    assert findings(source) == []


def test_every_value_in_a_template_is_quoted_where_it_is_written() -> None:
    """In scripts, units and configurations: but for numbers and constants of kedge's own, named for each template."""
    templates = sorted((ROOT / "templates").rglob("*.j2"))
    assert len(templates) > 15
    assert {path.name: found for path in templates if (found := unquoted(path.read_text(), path.name))} == {}


@pytest.mark.parametrize(
    "template",
    [
        "echo {{ job.name }}",
        "echo {{ job.name | upper }}",
        "echo {{ job.name | shell | upper }}",
        "echo {{ job.name | tojson }}",
        "echo {{ user }}",
        "{% set wait = job.name %}echo {{ wait }}",
        "{% for wait in job.names %}echo {{ wait }}{% endfor %}",
        "{% macro say(wait) %}echo {{ wait }}{% endmacro %}",
    ],
)
def test_a_value_that_is_not_quoted_is_found(template: str) -> None:
    """JSON's quotes don't protect in a shell, and an exception for a name holds in one template only."""
    assert len(unquoted(template, "mount-volumes.sh.j2")) == 1


def test_a_value_that_is_quoted_is_not_found() -> None:
    """Each of these examples is how to do it."""
    assert unquoted("echo {{ job.name | shell }} {{ 1 + 2 }} {{ wait }}", "mount-volumes.sh.j2") == []
