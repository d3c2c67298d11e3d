"""Tab in real shells: commands, flags, runs, jobs and modes, and names that try to be evaluated."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.bench_cli import record_runs
from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.task import Task
from tests.support.checkout import CHECKOUT
from tests.support.laptop import Laptop
from tests.support.terminals import on_terminal

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "", "\x01"),
    "zsh": (["zsh", "-f", "-i"], "bindkey -e; autoload -Uz compinit; compinit -u -D", "\x01"),
    "fish": (["fish", "--no-config", "-i"], "", "\x01"),
}
"""How to start each shell without the user's configuration, get it ready, and go to the beginning of a line."""
ODD = "odd $(touch pwned) it's `touch pwned`; touch pwned & <x>"
TYPED = {
    "kedge laun\t": ["launch"],
    "kedge help doct\t": ["help", "doctor"],
    "kedge launch --dry\t": ["launch", "--dry-run"],
    "kedge launch --job od\t": ["launch", "--job", ODD],
    "kedge launch od\t": ["launch", ODD],
    "kedge launch --mode lar\t": ["launch", "--mode", "large $(touch pwned)"],
    "kedge launch --mode=sm\t": ["launch", "--mode=small"],
    "kedge logs digits-1121-0003\t": ["logs", "digits-1121-0003"],
    "kedge fetch digits-1121-0000 --to ked\t": ["fetch", "digits-1121-0000", "--to", "kedge.yaml"],
    "kedge stop dig\t": ["stop", "digits-1121-0019"],
    "kedge exec -- ked\t": ["exec", "--", "kedge.yaml"],
}
"""What is typed, and the resulting words; only the newest run is live."""
SHIPPED = {path.stem for path in resource("infra", "jobs").glob("*.yaml")}
QUICK_S = 10.0


@pytest.fixture
def shelled(laptop: Laptop) -> Laptop:
    """A laptop with runs, jobs, modes, and kedge on its PATH."""
    programs = laptop.home.parent / "programs"
    programs.mkdir()
    (programs / "kedge").symlink_to(Path(sys.executable).with_name("kedge"))
    laptop.extra_env = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(laptop.home.parent),
        "XDG_CONFIG_HOME": str(laptop.home.parent / "config"),
    }
    (laptop.home / f"{ODD}.yaml").write_text("run: true\n")
    (laptop.home / "no-job.yaml").write_text("services: {}\n")
    laptop.write_job("{run: true, modes: {small: {}, 'large $(touch pwned)': {}}}")
    laptop.state.mkdir(mode=0o700)
    record_runs(laptop.state)
    return laptop


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_and_evaluates_nothing(shelled: Laptop, shell: str) -> None:
    """The words that a command would get are the names as they are, whatever they contain."""
    argv, ready, start = SHELLS[shell]
    script = shelled.home.parent / f"kedge.{shell}"
    script.write_text(shelled.kedge("completion", shell))
    lines = [ready, f"source {script}", *(f"{line}{start}printf '<%s>' " for line in TYPED), "exit", ""]
    code, screen = on_terminal(argv, cwd=shelled.home, env=shelled.env, kind="xterm", answer="\n".join(lines).encode())
    assert code == 0
    for typed, words in TYPED.items():
        assert "".join(f"<{word}>" for word in ["kedge", *words]) in screen, (typed, screen)
    assert not list(shelled.home.glob("pwned*"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_installation_page_sets_up_every_later_shell(shelled: Laptop, shell: str) -> None:
    """In a home without a configuration of that shell, and without a framework that has set up completion."""
    page = (CHECKOUT / "docs" / "install.md").read_text().partition("## Completion")[2]
    steps = [line for line in page.split("```")[1].splitlines()[1:] if shell in line]
    env = {**shelled.env, "XDG_CONFIG_HOME": str(shelled.home.parent / ".config")}
    subprocess.run(["bash", "-euc", "\n".join(steps)], env=env, check=True, timeout=60)
    typed = "kedge laun\t\x01printf '<%s>' \nexit\n"
    code, screen = on_terminal([shell, "-i"], cwd=shelled.home, env=env, kind="xterm", answer=typed.encode())
    assert code == 0
    assert "<kedge><launch>" in screen
    assert "not found" not in screen


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["launch", "--job", ""], {"kedge", *SHIPPED, ODD}),
        (["launch", "--job", "digits", "--mode", ""], {"validate", "full"}),
        (["launch", "--job=digits", "--mode", "f"], {"full"}),
        (["launch", "digits", "--mode=v"], {"--mode=validate"}),
        (["launch", "--job", "=", "dig"], {"digits"}),
        (["launch", "--provider", ""], set(PROVIDERS)),
        (["launch", "--env", ""], set()),
        (["launch", "digits", ""], set()),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["help", "sync"], {"sync-code", "sync-data"}),
        (["--v"], {"--version"}),
        (["ssh", ""], {"digits-1121-0019"}),
        (["nothing", ""], set()),
        ([], {"launch"}),
    ],
)
def test_only_words_that_fit_the_place_are_offered(shelled: Laptop, words: list[str], offered: set[str]) -> None:
    """Neither a file that is no job, nor an ended run if the command needs a machine."""
    found = {name for name, _ in offers(shelled, *words)}
    assert offered <= found if not words else offered == found


def test_tasks_of_the_named_run_or_of_all_live_ones_are_offered(shelled: Laptop) -> None:
    """In the job's order; a run whose command has no name has none."""
    ledger = shelled.ledger()
    for run, names in (("two-1", ["voxel", "pcdiff"]), ("other-1", ["fit"]), ("ended-1", ["old"])):
        job = Job(name="two", tasks=tuple(Task(name=name, run="true") for name in names))
        ledger.open_run(LaunchSpec(run_id=run, provider="local", job=job), datetime.now(UTC))
    ledger.end_run("ended-1", datetime.now(UTC))
    ledger.close()
    assert [name for name, _ in offers(shelled, "logs", "two-1", "--task", "")] == ["voxel", "pcdiff"]
    assert [name for name, _ in offers(shelled, "stop", "two-1", "--task=p")] == ["--task=pcdiff"]
    assert {name for name, _ in offers(shelled, "exec", "--task", "")} == {"voxel", "pcdiff", "fit"}
    assert offers(shelled, "logs", "digits-1121-0019", "--task", "") == []


def test_runs_are_offered_with_their_state_live_ones_first(shelled: Laptop) -> None:
    """In the order in which people look for them."""
    found = offers(shelled, "logs", "")
    assert len(found) == 20
    assert found[0] == ("digits-1121-0019", "succeeded")


def test_a_foreign_job_file_is_not_read(shelled: Laptop) -> None:
    """Its author could have anything offered; and a name with control characters is never offered."""
    (shelled.home / "kedge.yaml").chmod(0o666)
    (shelled.home / "\x1b[2Jevil.yaml").write_text("run: true\n")
    (shelled.home / "-n.yaml").write_text("run: true\n")
    assert offers(shelled, "launch", "--mode", "") == []
    assert {name for name, _ in offers(shelled, "launch", "--job", "")} == {*SHIPPED, ODD}


def test_tab_does_nothing_without_state_or_with_a_broken_ledger(laptop: Laptop) -> None:
    """It creates no folder, and prints no error into the line."""
    assert ("launch", "Rent a machine, run the job, fetch the results, end the machine.") in offers(laptop, "")
    assert offers(laptop, "logs", "") == []
    assert not laptop.state.exists()
    laptop.state.mkdir(mode=0o700)
    (laptop.state / "ledger.db").write_text("no database")
    (laptop.state / "completion.json").write_text('{"stamp"')
    assert offers(laptop, "logs", "") == []
    assert ("--raw", "print the command's raw bytes, for a pipe or a file") in offers(laptop, "logs", "--r")


def test_tab_imports_nothing_heavy_and_answers_at_once(shelled: Laptop) -> None:
    """Neither invoke nor anything heavier; the list of commands is cached until the program changes."""
    shelled.kedge("__complete", "")
    script = "import sys; from orchestrator.cli import __main__ as m; m.main(); print(*sys.modules)"
    argv = [sys.executable, "-c", script, "__complete", "stop", ""]
    began = time.monotonic()
    done = subprocess.run(argv, cwd=shelled.home, env=shelled.env, capture_output=True, text=True, check=True)
    assert time.monotonic() - began < QUICK_S
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"invoke", "msgspec", "pydantic", "rich", "yaml", "orchestrator.app", socket.__name__}


def test_an_unknown_shell_is_refused_with_the_known_ones(laptop: Laptop) -> None:
    """The error lists the shells that kedge knows."""
    laptop.kedge("completion", "tcsh", code=2)
    assert "bash, zsh, fish" in laptop.errors
    laptop.kedge("completion", code=2)


def offers(laptop: Laptop, *words: str) -> list[tuple[str, str]]:
    """Return what is offered for the last word, with the descriptions."""
    kind, *lines = laptop.kedge("__complete", *words).splitlines()
    assert laptop.errors == ""
    if kind == "files":
        return []
    assert kind == "words"
    return [(name, says) for name, _, says in (line.partition("\t") for line in lines)]
