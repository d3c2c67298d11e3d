"""A template fails when a value is missing, and quotes every value that it is given."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.host.templates import (
    TemplateError,
    escape_systemd,
    quote_shell,
    quote_ssh_config,
    quote_systemd,
    render,
)

PRINTABLE = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=30)


def test_a_name_without_a_value_fails() -> None:
    """Otherwise a file that runs on a machine would have a gap."""
    with pytest.raises(TemplateError, match="'description' is undefined") as caught:
        render("systemd/kedge-run.service.j2", root="/x")
    assert "systemd/kedge-run.service.j2" in caught.value.what
    assert caught.value.fix


def test_a_template_that_is_not_there_fails() -> None:
    """With its name."""
    with pytest.raises(TemplateError, match=r"there is no template nothing\.j2"):
        render("nothing.j2")


@given(words=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=4))
def test_a_shell_reads_back_every_word_unchanged(words: list[str]) -> None:
    """One word, or a list of them, whatever they hold."""
    assert shlex.split(quote_shell(words)) == words
    assert [shlex.split(quote_shell(word)) for word in words] == [[word] for word in words]


@given(text=PRINTABLE)
def test_a_quoted_value_of_a_unit_can_be_read_back(text: str) -> None:
    """By systemd's rules: an escaped backslash and quote, a doubled percent sign, quotes around."""
    quoted = quote_systemd(text)
    assert quoted[0] == quoted[-1] == '"'
    inner = quoted[1:-1].replace("\\\\", "\0").replace('\\"', '"').replace("\0", "\\")
    assert inner.replace("%%", "%") == text


@pytest.mark.parametrize("quote", [quote_systemd, escape_systemd, quote_ssh_config])
@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\0", "\x1b[2J"])
def test_a_line_end_is_refused(quote: object, value: str) -> None:
    """It would begin a line of its own, which may say anything."""
    assert callable(quote)
    with pytest.raises(TemplateError, match="control character"):
        quote(value)


def test_free_text_of_a_unit_has_no_backslash() -> None:
    """At the end of a line it would join the next one."""
    assert escape_systemd("100%") == "100%%"
    with pytest.raises(TemplateError, match="backslash"):
        escape_systemd("a\\")


@pytest.mark.parametrize(
    ("value", "text"),
    [("/plain/path_1.2", "/plain/path_1.2"), ("/with space", '"/with space"'), ("a%h", "a%%h"), ("", '""')],
)
def test_values_of_ssh_config_are_quoted_where_they_need_it(value: str, text: str) -> None:
    """And `%` begins no token."""
    assert quote_ssh_config(value) == text


@pytest.mark.parametrize("value", ['a"b', "a'b", "a\\b", "${HOME}"])
def test_what_ssh_config_cannot_say_is_refused(value: str) -> None:
    """Instead of naming another file."""
    with pytest.raises(TemplateError):
        quote_ssh_config(value)


@pytest.mark.parametrize("name", ["plain", "with space", "# no comment", "per%cent", "ünïcode", "a,b=c"])
def test_openssh_reads_the_path_that_was_meant(tmp_path: Path, name: str) -> None:
    """The client itself, asked what it would use."""
    config = tmp_path / "config"
    config.write_text(f"Host x\n  IdentityFile {quote_ssh_config(f'/keys/{name}')}\n")
    done = subprocess.run(["ssh", "-G", "-F", str(config), "x"], capture_output=True, text=True, check=True, timeout=30)
    shown = next(line for line in done.stdout.splitlines() if line.startswith("identityfile "))
    assert shown.removeprefix("identityfile ").replace("%%", "%") == f"/keys/{name}"
