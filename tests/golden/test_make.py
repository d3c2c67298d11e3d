"""What `make` would do on a fresh checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing was ever made."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(_ROOT / name, tmp_path)
    for name in ("locks", "infra/setup"):
        shutil.copytree(_ROOT / name, tmp_path / name)
    return tmp_path


def plan(checkout: Path, target: str) -> list[str]:
    """List the commands that `make TARGET` would run, in their order."""
    argv = ["make", "--no-print-directory", "--dry-run", target]
    return subprocess.run(argv, cwd=checkout, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_demo_installs_the_trainer_and_no_development_tools(checkout: Path) -> None:
    """A first look needs no linter, box or type checker."""
    commands = plan(checkout, "demo")
    assert "bash infra/setup/python.sh .venv trainer" in commands
    assert not any("python.sh .venv tests" in command or "system.sh tests" in command for command in commands)


def test_the_demo_says_what_it_takes_before_it_installs_anything(checkout: Path) -> None:
    """Disk, download and time come first; where nothing is to be installed, nothing is said."""
    commands = plan(checkout, "demo")
    said = next(index for index, command in enumerate(commands) if "room.sh .venv trainer" in command)
    assert (
        said < commands.index("bash infra/setup/system.sh") < commands.index("bash infra/setup/python.sh .venv trainer")
    )


_PIP = """\
#!/bin/sh
case "$*" in
*"config list") cat config ;;
*) echo "$@" >>called ;;
esac
case "$*" in *whl/cpu*) exit "$(cat reached)" ;; esac
"""
_CPU = "--retries 1 -c constraints.txt --index-url https://download.pytorch.org/whl/cpu torch"
_USUAL = "-c constraints.txt torch"


def install(checkout: Path, lock: str, *, config: str = "", gpu: bool = False, reached: bool = True) -> list[str]:
    """Install with a pip that only writes down what it is asked for, and return that."""
    programs = checkout / "programs"
    for program, text in {
        checkout / ".venv/bin/python": _PIP,
        programs / "nvidia-smi": f"#!/bin/sh\nexit {0 if gpu else 9}\n",
        # As much as there is on a new disk.
        programs / "df": "#!/bin/sh\necho Filesystem\necho /dev/sda1 99000000 1000000 98000000 2% /\n",
    }.items():
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    (checkout / "config").write_text(config)
    (checkout / "reached").write_text("0" if reached else "1")
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["bash", "infra/setup/python.sh", ".venv", lock], cwd=checkout, check=True, env=environ)
    called = (checkout / "called").read_text().splitlines()
    flags = r"-m pip --disable-pip-version-check install --no-compile (--progress-bar off )?(--quiet )?"
    assert all(re.match(flags, line) for line in called)
    return [re.sub(flags, "", line) for line in called]


def test_what_is_installed_is_locked_but_for_torch(checkout: Path) -> None:
    """By hash, pip and the tools that build kedge too: no step resolves anything by itself, except torch."""
    pip, *steps = install(checkout, "trainer", gpu=True)
    assert re.fullmatch(r"--require-hashes -r \S+", pip)
    assert steps == [
        "--require-hashes -r locks/trainer.txt",
        _USUAL,
        "--force-reinstall --no-deps --no-build-isolation --editable .",
    ]


def test_the_command_is_a_copy_without_torch(checkout: Path) -> None:
    """`make install`: a checkout that is changed or removed later changes no command."""
    assert install(checkout, "kedge")[1:] == [
        "--require-hashes -r locks/kedge.txt",
        "--force-reinstall --no-deps --no-build-isolation .",
    ]


@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_the_command_of_another_installation_stays(checkout: Path, tmp_path: Path, target: str) -> None:
    """One that uv or pipx installed: `make install` adds nothing beside it, and removes nothing."""
    command = tmp_path / "home" / ".local/bin/kedge"
    command.parent.mkdir(parents=True)
    command.symlink_to("../share/pipx/venvs/kedge-train/bin/kedge")
    argv = ["bash", "infra/setup/command.sh", target]
    environ = {**os.environ, "HOME": str(tmp_path / "home")}
    done = subprocess.run(argv, cwd=checkout, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is of another installation; nothing was changed" in done.stderr
    assert command.is_symlink()
    assert [path.name for path in (tmp_path / "home/.local").iterdir()] == ["bin"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has one build")
@pytest.mark.parametrize(
    ("how", "steps"),
    [
        pytest.param({}, [_CPU], id="no GPU: without CUDA's libraries"),
        pytest.param({"gpu": True}, [_USUAL], id="a GPU"),
        pytest.param({"reached": False}, [_CPU, _USUAL], id="PyTorch's index can't be reached"),
        pytest.param({"config": "global.index-url='https://pypi.example.org'"}, [_USUAL], id="an index of the user's"),
        pytest.param({"config": ":env:.find-links='/wheels'"}, [_USUAL], id="a folder of the user's"),
    ],
)
def test_the_build_of_torch_fits_the_computer(checkout: Path, how: dict[str, Any], steps: list[str]) -> None:
    """PyTorch's index is asked for that one package, once, and nobody's configuration changes."""
    assert [line for line in install(checkout, "trainer", **how) if line.endswith(" torch")] == steps


def test_the_demo_uses_an_environment_that_was_made_for_tests(checkout: Path) -> None:
    """`make demo` after `make test` installs nothing."""
    assert "bash infra/setup/python.sh .venv tests" in plan(checkout, "test")
    (checkout / ".venv").mkdir()
    for name in (".ready", ".ready-demo"):
        (checkout / ".venv" / name).touch()
    assert not any("python.sh" in command for command in plan(checkout, "demo"))


def test_what_test_machines_need_is_made_before_any_test(checkout: Path) -> None:
    """Set-up unpacks a Debian: with empty caches, tests that wait 30 s for a machine would fail."""
    commands = plan(checkout, "test")
    prepared = commands.index(".venv/bin/python -m tests.cloudbox.nspawn.needs")
    assert prepared < next(index for index, command in enumerate(commands) if "/pytest" in command)


def test_a_check_looks_at_everything_and_starts_no_machine(checkout: Path) -> None:
    """What an engineer waits for between two edits; `make test` runs the same looks, and all tests."""
    commands = plan(checkout, "check")
    looks = [f".venv/bin/{look}" for look in ("mypy", "ruff check .", "ruff format --check .", "lint-imports")]
    assert set(looks) <= set(commands)
    assert set(looks) <= set(plan(checkout, "test"))
    assert any(command.endswith("tests/unit tests/plans tests/golden") for command in commands)
    assert not any("nspawn" in command for command in commands)


def test_the_name_of_the_wheel_stands_in_one_place() -> None:
    """In pyproject.toml; pages that name it, for uv and pipx, use that name."""
    name = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["name"]
    pages = [_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]
    said = {
        found
        for page in pages
        for found in re.findall(r"(?:uv tool|pipx) (?:upgrade|uninstall) (\S+?)`?(?=\s|$)", page.read_text())
    }
    assert said == {name}
