"""Checks kedge's own installation for `kedge doctor`, with nothing but the standard library.

A failed installer, a full disk or a system upgrade can leave kedge without something that it needs.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.adapters.host.resources import resource
from orchestrator.core.checkup import Check, Verdict
from orchestrator.core.errors import KedgeError

_IMPORT_SECONDS = 120.0
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^>]*(?:>=\s*([0-9.]+))?")
_MODULES = {"azure-core": "azure.core", "pyyaml": "yaml"}
"""Modules of packages that are named differently."""
_OWN = ("orchestrator.cli.program", "orchestrator.app.launch.launching", "orchestrator.adapters.ssh.connector")
"""Importing these loads all of kedge's modules that every launch needs."""
_PACKAGES = ("orchestrator", "trainer", "kedge_trainer")
_RESOURCES = (("templates", "boot"), ("infra", "jobs"), ("trainer", "__init__.py"), ("kedge_trainer", "__main__.py"))

# One after another, so that each broken one is named; one line each, because the last may crash the interpreter.
_IMPORT = """import importlib, json, sys
sys.path = json.loads(sys.argv[1])
for name in sys.argv[2:]:
    error = ""
    try:
        importlib.import_module(name)
    except BaseException as err:
        error = f"{type(err).__name__}: {err}"
    print(json.dumps([name, error]), flush=True)
"""


def look_at_installation() -> tuple[Check, ...]:
    """Check that kedge's packages and files are complete, in the versions that it requires."""
    own = _find_own()
    if own is None:
        found = f"{_folder()} isn't installed, so its packages aren't checked"
        return (Check(name="kedge", verdict=Verdict.WARNING, found=found, fix="`make install` installs a checkout"),)
    packages = tuple(_look_at_packages(own))
    files = _look_at_files(own)
    found = f"{own.version}, in {sys.prefix}"
    return (Check(name="kedge", verdict=Verdict.OK, found=found), files, *packages)


def _look_at_packages(own: Distribution) -> Iterator[Check]:
    """Yield a finding for each bad package; one line for all if none is bad."""
    asked = dict(_requirements(own))
    modules = {name: _MODULES.get(name, name.replace("-", "_")) for name in asked}
    errors = _import({**modules, **{name: name for name in _OWN}})
    bad = False
    for name, oldest in asked.items():
        wanted = f"{name}>={oldest}" if oldest else name
        if found := _why_bad(name, oldest, errors.get(name, "")):
            bad = True
            yield Check(name=name, verdict=Verdict.FAILED, found=found, fix=_mend(own, wanted))
    if bad:
        return
    # A module of kedge's own often fails only because a package did, which has been reported.
    broken = {name: errors[name] for name in _OWN if errors[name]}
    for name, error in broken.items():
        yield Check(name=name, verdict=Verdict.FAILED, found=f"can't be imported: {error}", fix=_mend(own))
    if not broken:
        yield Check(name="packages", verdict=Verdict.OK, found=f"{len(asked)}, in the versions that kedge requires")


def _why_bad(name: str, oldest: str, error: str) -> str:
    try:
        version = distribution(name).version
    except PackageNotFoundError:
        return "missing"
    if oldest and _numbers(version) < _numbers(oldest):
        return f"{version}; kedge needs {oldest} or newer"
    return f"{version} can't be imported: {error}" if error else ""


def _look_at_files(own: Distribution) -> Check:
    """Compare kedge's files with the installer's record; in a checkout, check only that they exist."""
    try:
        for parts in _RESOURCES:
            resource(*parts)
    except KedgeError as err:
        return Check(name="files", verdict=Verdict.FAILED, found=err.why, fix=_mend(own))
    missing, changed = [], []
    for file in (file for file in own.files or () if file.parts[0] in _PACKAGES):
        path = Path(str(file.locate()))
        if not path.is_file():
            missing.append(file)
        elif file.hash and file.hash.mode == "sha256" and _digest(path) != file.hash.value:
            changed.append(file)
    if missing:
        found = f"{len(missing)} are missing, such as {missing[0]}"
        return Check(name="files", verdict=Verdict.FAILED, found=found, fix=_mend(own))
    if changed:
        found = f"{len(changed)} differ from what was installed, such as {changed[0]}"
        return Check(name="files", verdict=Verdict.WARNING, found=found, fix=_mend(own))
    return Check(name="files", verdict=Verdict.OK, found="templates, jobs and trainer are there")


def _find_own() -> Distribution | None:
    """Return the installed package that this code belongs to, whatever its name."""
    for script in entry_points(group="console_scripts", name="kedge"):
        if script.value.startswith("orchestrator.") and script.dist is not None:
            return script.dist
    return None


def _requirements(own: Distribution) -> Iterator[tuple[str, str]]:
    """Yield the name and the oldest accepted version of each package that isn't optional."""
    for line in own.requires or ():
        needed, _, condition = line.partition(";")
        match = _REQUIREMENT.match(needed)
        if match and "extra" not in condition:
            yield match[1].lower(), match[2] or ""


def _import(modules: Mapping[str, str]) -> dict[str, str]:
    """Import modules in another process, because a broken one may crash it; return each one's error, empty for none."""
    # It gets this process's sys.path, so it needs nothing from the shell's environment, which holds tokens.
    argv = [sys.executable, "-I", "-W", "ignore", "-c", _IMPORT, json.dumps(sys.path), *modules.values()]
    try:
        done = subprocess.run(
            argv, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_IMPORT_SECONDS, check=False
        )
        said, ended = done.stdout, f"the interpreter ended with {done.returncode}"
    except subprocess.TimeoutExpired as err:
        said, ended = err.stdout or b"", f"it took more than {_IMPORT_SECONDS:g} s"
    errors = dict(json.loads(line) for line in said.splitlines() if line.startswith(b"["))
    return {name: errors.get(module, ended) for name, module in modules.items()}


def _mend(own: Distribution, wanted: str = "") -> str:
    """Return the command that reinstalls a package, or all of kedge, with the tool that installed kedge."""
    parts = Path(sys.prefix).parts
    if parts[-3:-1] == ("uv", "tools"):
        return f"uv tool upgrade --reinstall {parts[-1]}"
    if parts[-2:-1] == ("venvs",) and "pipx" in parts:
        return f"pipx reinstall {parts[-1]}"
    source = [wanted] if wanted else _source(own)
    if not source:
        return "install kedge again, in the same way as before"
    if importlib.util.find_spec("pip") is None:
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, "--reinstall", *source])
    return shlex.join([sys.executable, "-m", "pip", "install", "--force-reinstall", *source])


def _source(own: Distribution) -> Sequence[str]:
    """Return where kedge was installed from; empty if the installer hasn't recorded it (PEP 610)."""
    try:
        said = json.loads(own.read_text("direct_url.json") or "{}")
        url = str(said.get("url", ""))
    except (ValueError, AttributeError):
        return ()
    path = unquote(urlsplit(url).path) if url.startswith("file:") else url
    return ["-e", path] if said.get("dir_info", {}).get("editable") else [path] if path else []


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version's release numbers without zeros at the end; pre- and post-release parts are ignored."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in release[0].split(".")] if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _digest(path: Path) -> str:
    """Return a file's digest in the form that installers record (PEP 376)."""
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


def _folder() -> Path:
    return Path(__file__).resolve().parents[3]
