"""`--json` of every command on real runs: one document that matches its schema in docs/json."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jsonschema import Draft202012Validator

from orchestrator.cli.command_line import flags_of
from orchestrator.cli.program import namespace
from tests.e2e.runs import kill_machine
from tests.support.json_schemas import FOLDER, documented_commands, read_schema, require_documented
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000, PAUSE: 0.05}
    deadline: 10m
    budget: 5
    supervisor: {kind: nohup, grace: 5s}
    modes: {short: {envs: {STEPS: 2}}}
"""
ELSEWHERE = {"bootstrap", "selftest"}
"""They need an account, or a minute: tests/cloudbox and test_selftest.py compare their output with their schemas."""


def commands_with_json() -> set[str]:
    return {name for name in namespace.task_names if "--json" in flags_of(namespace[name], name).flags}


def test_every_command_with_json_has_a_schema_and_every_schema_a_command() -> None:
    """A new command's output is documented before it is printed."""
    assert documented_commands() == commands_with_json()


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.json")))
def test_each_schema_is_valid_and_requires_something(name: str) -> None:
    """A schema that accepts everything would promise nothing."""
    schema = read_schema(name)
    Draft202012Validator.check_schema(schema)
    if name != "common.json":
        command = name.removesuffix(".json")
        assert schema["title"] == f"kedge {command} --json"
        with pytest.raises(AssertionError):
            require_documented(command, [{}] if schema.get("type") == "array" else {})


@pytest.fixture
def toy(laptop: Laptop) -> Iterator[Laptop]:
    """A laptop with a job that runs until it is stopped."""
    laptop.write_job(JOB)
    yield laptop
    laptop.kedge("teardown", "--yes", code=None)


def test_each_command_prints_one_document_as_its_schema_says(toy: Laptop) -> None:
    """All commands of a run's life, with --json; `Laptop.json` compares."""
    asked: set[str] = set()

    def ask(command: str, *words: str, code: int | None = 0) -> object:
        asked.add(command)
        return toy.json(command, *words, code=code)

    jobs = ask("jobs")
    assert isinstance(jobs, list)
    assert [(job["name"], job["modes"]) for job in jobs if job["path"] == str(toy.home / "kedge.yaml")] == [
        ("kedge", ["short"])
    ]
    ask("offers", "--price", "1.99")
    ask("doctor", code=None)
    ask("plan", "--price", "1.99")
    ask("launch", "--dry-run")
    ask("launch", "--detach", "--yes", "--price", "1.99", "--recover")
    (run,) = toy.json("status", "--ledger")
    wait_until((toy.state / "machines" / f"{run['run']}-m1" / "sample.json").exists)
    assert toy.json("status")[0]["report"]["sample"] is not None
    ask("status", run["run"])
    ask("cost")
    ask("sync-code")
    ask("sync-code", "--restart")
    ask("sync-data")
    ask("extend", "1h", "--dry-run")
    ask("extend", "1h", "--yes")
    ask("start")
    for command in ("start", "stop", "sync-data", "fetch", "teardown", "resume"):
        ask(command, "--dry-run")
    ask("extend", "5m", "--dry-run")
    ask("extend", "5m", "--yes")
    ask("fetch")
    assert ask("recover") == []
    kill_machine(toy, run["run"])
    (recovered,) = toy.json("recover")
    assert recovered["run"] == run["run"]
    ask("stop")
    ask("start")
    ask("stop", "--now", "--yes")
    ask("reap", "--dry-run", code=None)
    ask("volumes", code=None)
    ask("teardown", "--yes")
    ask("teardown", run["run"], "--yes")
    ask("resume", "--dry-run")
    ask("status", "--all")
    assert asked == commands_with_json() - ELSEWHERE


@pytest.mark.parametrize("words", [["recover", "--install"], ["offers", "--refresh"]])
def test_commands_without_a_document_refuse_json(laptop: Laptop, words: list[str]) -> None:
    """A text where a script expects a document would break the script later."""
    laptop.kedge(*words, "--json", code=2)
    assert "--json" in laptop.errors
