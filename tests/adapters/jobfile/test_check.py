"""A job's `check`: a command in words, with values of the job's own variables and with nothing of this computer's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.adapters.host.child_environment import check_environment
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.values.data_check import bundled_arguments

Read = Callable[..., Job]
Refuse = Callable[..., BadRequestError]

JOB = """
run: python train.py
envs: {SIZE: 32, WHERE: "two words; $SIZE", TOKEN: null}
secrets: [HF_TOKEN]
check: %s
modes:
  small: {envs: {SIZE: 8}}
  other: {check: ./check.sh}
"""
ENVIRON = {"TOKEN": "t", "HF_TOKEN": "s", "HOME": "/home/me"}


def test_a_check_is_split_into_words_and_variables_stay_within_theirs(read: Read) -> None:
    """A value with spaces, or with what a shell would act on, is one word; a value isn't expanded again."""
    job = read(JOB % "python -m trainer check digits --data '$WHERE' --batch-size=${SIZE}", environ=ENVIRON)
    assert job.checks == (
        ("python", "-m", "trainer", "check", "digits", "--data", "two words; $SIZE", "--batch-size=32"),
    )


def test_a_mode_and_a_flag_change_what_is_checked(read: Read) -> None:
    """A mode may have its own check; `--env` has the last word about a value, as it has for the command."""
    assert read(JOB % "c $SIZE", environ=ENVIRON, mode="small").checks == (("c", "8"),)
    assert read(JOB % "c $SIZE", environ=ENVIRON, mode="other").checks == (("./check.sh",),)
    assert read(JOB % "c $SIZE", environ=ENVIRON, mode="small", env=["SIZE=64"]).checks == (("c", "64"),)


def test_a_list_has_several_checks_and_a_mode_replaces_all_of_them(read: Read) -> None:
    """In their order; an empty list has none."""
    text = JOB % "[c $SIZE, 'd a']"
    assert read(text, environ=ENVIRON).checks == (("c", "32"), ("d", "a"))
    assert read(text, environ=ENVIRON, mode="other").checks == (("./check.sh",),)
    assert read(f"{text}  none: {{check: []}}", environ=ENVIRON, mode="none").checks == ()


@pytest.mark.parametrize(
    ("second", "said"),
    [("c $TOKEN", "$TOKEN can't be used here"), ("c a | d", "'|' is for a shell"), ("{c: d}", "is not a single value")],
)
def test_a_mistake_in_a_list_is_refused_with_its_line(refuse: Refuse, second: str, said: str) -> None:
    """Of the item, in the mode that has the list."""
    error = refuse(JOB % f"\n  - c\n  - {second}", environ=ENVIRON)
    assert "kedge.yaml:7: `check[1]`" in error.what
    assert said in error.what
    error = refuse(
        f"{JOB % '[c, d]'}  listed:\n    check:\n      - c\n      - c $HOME\n", environ=ENVIRON, mode="listed"
    )
    assert "kedge.yaml:12: `modes.listed.check[1]`" in error.what
    error = refuse(f"{JOB % '[c, d]'}  single: {{check: c $HOME}}\n", environ=ENVIRON, mode="single")
    assert "kedge.yaml:9: `modes.single.check`" in error.what


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("c $TOKEN", "$TOKEN can't be used here"),
        ("c $HF_TOKEN", "$HF_TOKEN can't be used here"),
        ("c --x=${HOME}", "$HOME is not one of the job's `envs`"),
        ("c a | d", "'|' is for a shell"),
        ("c 'a", "can't be split into words"),
        ('"a\\u202eb"', "U+202E"),
        ("|\n  c\n  d", "U+000A"),
        ("''", "this names no program"),
    ],
)
def test_what_a_check_cannot_be_is_refused_with_its_line(refuse: Refuse, check: str, said: str) -> None:
    """Values of the shell would be recorded and shown; what needs a shell would be passed to the program as a word."""
    error = refuse(JOB % check, environ=ENVIRON)
    assert "kedge.yaml:5: `check`" in error.what
    assert said in error.what


def test_a_variable_that_a_flag_takes_from_the_shell_is_refused_too(refuse: Refuse) -> None:
    """`--env SIZE` makes it a secret, whatever the file says."""
    error = refuse(JOB % "c $SIZE", environ={**ENVIRON, "SIZE": "5"}, env=["SIZE"])
    assert "$SIZE can't be used here" in error.what


@pytest.mark.parametrize(
    ("command", "own_trainer", "arguments"),
    [
        ("python -m trainer check digits --data d", False, ("check", "digits", "--data", "d")),
        ("python3.12 -m kedge_trainer check", True, ("check",)),
        ("python -m trainer check digits", True, None),
        ("python -m trainer digits", False, None),
        ("python -X importtime -m trainer check", False, None),
        ("./python -m trainer check", False, None),
        ("pythonic -m trainer check", False, None),
        ("python", False, None),
        ("sh -c true", False, None),
    ],
)
def test_only_the_trainers_check_counts_as_kedges_own(
    command: str, own_trainer: bool, arguments: tuple[str, ...] | None
) -> None:
    """It is run without a question under --yes, so nothing else may pass for it."""
    assert bundled_arguments(command.split(), has_own_trainer=own_trainer) == arguments


def test_a_checks_environment_is_a_short_list() -> None:
    """Where programs and the home are, the language, and a folder for temporary files."""
    given = {"PATH": "/bin", "HOME": "/h", "LANG": "C", "LC_TIME": "C", "TMPDIR": "/t"}
    secret = dict.fromkeys(("AWS_PROFILE", "HF_TOKEN", "SSH_AUTH_SOCK", "PYTHONPATH", "LD_PRELOAD", "KEDGE_X"), "x")
    assert check_environment(given | secret) == given | {"PYTHONUNBUFFERED": "1"}
