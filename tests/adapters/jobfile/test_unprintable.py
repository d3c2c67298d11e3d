"""Unprintable characters in names, paths and tags are refused in job files, flags and settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.jobfile.read import read_user_settings
from orchestrator.core.errors import BadRequestError
from tests.support.laptop import Laptop

Refuse = Callable[..., BadRequestError]


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ('volumes:\n  "a\\x1bb": {name: scans, size: 10}', 2, "volumes.'a\\x1bb'"),
        ('volumes:\n  - {name: scans, size: 10,\n     target: "a\\u202eb"}', 3, "volumes[0].target"),
        ('run: x\nworkdir: "a\\x1bb"', 2, "workdir"),
        ('data:\n  "a\\u200bb": .', 2, "data.'a\\u200bb'"),
        ('data:\n  a: "s3://bucket/\\x9b2J/"', 2, "data.a"),
        ('outputs:\n  - "r\\x07"', 2, "outputs[0]"),
        ('outputs:\n  - "r\\nesults"', 2, "outputs[0]"),
        ('checkpoints: "c\\tk"', 1, "checkpoints"),
        ('resources:\n  region: "us\\u2066-east-1"', 2, "resources.region"),
        ('provider:\n  aws:\n    tags:\n      team: "v\\u202e"', 4, "provider.aws.tags.team"),
        ('provider:\n  aws:\n    tags: {team: "a\\nb"}', 3, "provider.aws.tags"),
        ('provider:\n  aws:\n    proxy_command: "ssh \\u202e"', 3, "provider.aws.proxy_command"),
        ('envs:\n  "A\\x1b": b', 2, "envs"),
        ('secrets: ["A\\x1b"]', 1, "secrets"),
        ('modes:\n  "f\\x1b": {}', 2, "modes"),
        ('name: "a\\u200b"', 1, "name"),
        ('tasks:\n  "f\\x1b": {run: x}', 2, "tasks"),
        ('tasks:\n  envs: {run: x, after: "b\\x1b"}', 2, "tasks.envs.after"),
        ('modes:\n  envs: {workdir: "b\\x1b"}', 2, "modes.envs.workdir"),
    ],
)
def test_a_job_file_is_refused_with_the_line_and_the_key(refuse: Refuse, text: str, line: int, key: str) -> None:
    """Otherwise the plan would show another name than the machine gets, and the user-data would be invalid."""
    error = refuse(text)
    assert f"kedge.yaml:{line}: " in error.what
    assert key in error.what
    assert error.fix
    assert error.what.isprintable()


def test_a_variable_cannot_bring_unprintable_characters_into_a_path(refuse: Refuse, folder: Path) -> None:
    """A variable may have any value that isn't used in a path."""
    (folder / "a\x1bb").mkdir()
    assert "`data.d`" in refuse('envs: {X: "a\\x1bb"}\ndata: {d: $X}').what
    assert "data" in refuse('envs: {X: "a\\x1bb"}\ndata: {$X: .}').what
    assert "data" in refuse('envs: {X: "\\x1b"}\ndata: {d: "hf://datasets/a/b/$X"}').what
    assert "`workdir`" in refuse('envs: {X: "a\\x1bb"}\nworkdir: $X').what


def test_scripts_and_values_of_variables_may_hold_any_character(read: Callable[..., object]) -> None:
    """Several lines, colours, any writing system. Kedge cleans what it prints of them."""
    read('run: "printf \'\\x1b[31m\'\\n\\ttrain \\u200c"\nsetup: "a\\nb"\nenvs: {PS1: "\\x1b[1m> "}')
    read(
        'tasks: {run: {run: "\\x1b", resume: "\\x1b", envs: {A: "\\x1b"}}}\nmodes: {m: {tasks: {run: {run: "\\x1b"}}}}'
    )


def test_the_users_settings_are_refused_too(tmp_path: Path) -> None:
    """The error names their file and line."""
    settings = tmp_path / "config.yaml"
    settings.write_text('provider:\n  aws:\n    tags: {team: "v\\u202e"}\n')
    with pytest.raises(BadRequestError, match=r"config.yaml:3: `provider.aws.tags.team`"):
        read_user_settings(settings)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["launch", "--job", "a\x1bb"], "--job"),
        (["launch", "--region", "us\u202e"], "--region"),
        (["launch", "--region=us\u202e"], "--region"),
        (["launch", "--env", "A\x9b=b"], "--env"),
        (["launch", "--env=A\u200b=b"], "--env"),
        (["fetch", "--to", "a\nb"], "--to"),
        (["status", "\x1b[2J"], "status"),
    ],
)
def test_a_flag_is_refused_before_anything_is_looked_up(laptop: Laptop, words: list[str], flag: str) -> None:
    """The error names the flag, on one line."""
    laptop.kedge(*words, code=2)
    assert flag in laptop.errors
    assert "U+" in laptop.errors.splitlines()[0]
    assert "fix" in laptop.errors


def test_an_unprintable_variable_of_kedges_own_is_refused(laptop: Laptop) -> None:
    """Its value becomes part of paths and of SSH configurations."""
    laptop.kedge("status", code=2, env={"KEDGE_SSH_FROM": "198.51.100.7/32\u200b"})
    assert "KEDGE_SSH_FROM" in laptop.errors
    laptop.kedge("status", code=2, env={"KEDGE_STATE_DIR": f"{laptop.state}\x1b"})
    assert "KEDGE_STATE_DIR" in laptop.errors


def test_env_values_and_words_after_two_dashes_may_hold_any_character(laptop: Laptop) -> None:
    """The machine gets them unchanged."""
    laptop.write_job("run: env")
    laptop.kedge("plan", "--env", "PS1=\x1b[1m\n", code=0)
    laptop.kedge("exec", "--", "echo", "\x1b[2J", code=2)
    assert "no live run" in laptop.errors.lower()
