"""Which characters of a text may reach a terminal, whatever the text is and wherever it is cut."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.printable import clean, clean_coloured, clean_line, find_unprintable, require_printable
from tests.support.terminals import forbidden

HOSTILE = st.lists(
    st.one_of(
        st.sampled_from(
            ["\x1b", "[", "]", "P", "2J", "31m", "8m", ";", "\x9b", "\x9d", "\x07", "\x1b\\", "\r", "\n", " "]
        ),
        st.characters(),
    )
).map("".join)


@given(text=HOSTILE, cut=st.integers(min_value=0, max_value=20))
def test_nothing_is_left_that_a_terminal_obeys_wherever_a_text_is_cut(text: str, cut: int) -> None:
    """Whole, in two pieces, or cleaned twice."""
    assert forbidden(clean(text)) == []
    assert forbidden(clean(text[:cut]) + clean(text[cut:])) == []
    assert clean(clean(text)) == clean(text)
    assert (find_unprintable(text, lines=True) == "") == (clean(text) == text)


@given(text=HOSTILE)
def test_a_text_on_a_line_stays_on_it(text: str) -> None:
    """Nor can it begin another one, or leave its column."""
    assert not set(clean_line(text)) & {"\n", "\t"}
    assert forbidden(clean_line(text)) == []


@given(text=HOSTILE)
def test_of_a_coloured_text_nothing_but_the_colours_is_left(text: str) -> None:
    """None of them hides anything: 8 isn't among them, but as the number of a colour."""
    colours = re.findall("\x1b.*?m", clean_coloured(text))
    assert forbidden(re.sub("\x1b\\[[0-9;]*m", "", clean_coloured(text))) == []
    assert all(re.fullmatch(r"\x1b\[[0-9;]*m", colour) for colour in colours)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\x1b[2Jb\x1b]0;title\x07c", "abc"),
        ("\x1b]8;;https://evil.example\x1b\\good.example\x1b]8;;\x1b\\", "good.example"),
        ("\x1bP1$r0m\x1b\\x\x90q\x9cy", "xy"),
        ("end \x1b[", "end "),
        ("2J of another line", "2J of another line"),
        ("window \x1b]0;ti", "window 0;ti"),
        ("\x9b2Jx\x9d0;title\x9cy", "xy"),
        ("10%\r20%\r\n30%\r\r\n", "10%\n20%\n30%\n"),
        ("a\x08\x08b\x7fc\x00d", "abcd"),
        ("photo\u202egnp.exe", "photognp.exe"),
        ("ad\u200bmin\ufeff\u2060\U000e0041", "admin"),
        ("\ud800\udcff", "\ufffd\ufffd"),
        ("ünïcode שלום 中文 🙂 e\u0301", "ünïcode שלום 中文 🙂 e\u0301"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_readable_text_is_kept(text: str, left: str) -> None:
    """Whole sequences go, broken ones lose what makes them obeyed, and letters of all scripts stay."""
    assert clean(text) == left


@pytest.mark.parametrize("colour", ["31", "1;31", "", "0", "38;5;8", "48;2;1;2;3", "97;104"])
def test_colours_of_a_log_stay(colour: str) -> None:
    """Those of programs that know colours."""
    assert clean_coloured(f"a\x1b[{colour}mb\x1b[2J") == f"a\x1b[{colour}mb"


@pytest.mark.parametrize("colour", ["8", "1;8", "5", "38;5", ">4;1", "?1", "31;"])
def test_sequences_that_only_look_like_colours_are_removed(colour: str) -> None:
    """Those that hide letters, make them blink, or program the keyboard."""
    assert clean_coloured(f"a\x1b[{colour}mb") == "ab"


def test_every_control_and_format_character_goes_but_those_that_are_seen() -> None:
    """By Unicode's own categories: new ones aren't forgotten."""
    signs = (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440))
    seen = {"\n", "\t", *map(chr, signs)}
    kinds = ("Cc", "Cf", "Zl", "Zp")
    left = {letter for letter in map(chr, range(0x110000)) if unicodedata.category(letter) in kinds and clean(letter)}
    assert left - seen - {"\r"} == set()


@pytest.mark.parametrize(
    "piece", ["\x1b[", "\x1b]", "\x9d", "\x1b[0;", "\x1b]a\x9d", "\r", "\x1b ", "\x1b[38;5;1;", "\n \t"]
)
def test_a_long_text_takes_no_longer_for_being_hostile(piece: str) -> None:
    """No repetition costs more than its length: a megabyte takes about a second on a slow computer."""
    text = piece * (300_000 // len(piece))
    began = time.process_time()
    clean_line(text)
    clean_coloured(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2J", r"'a\x1b[2J' holds U+001B"),
        ("a\nb", r"'a\nb' holds U+000A"),
        ("\x1b" + "x" * 54, rf"'\x1b{'x' * 54}' holds U+001B"),
        ("\x1b" + "x" * 55, rf"'\x1b{'x' * 55}... holds U+001B"),
    ],
)
def test_a_name_that_can_not_be_shown_is_refused_with_what_it_holds(text: str, shown: str) -> None:
    """The name is shown escaped, and cut where it is long."""
    with pytest.raises(BadRequestError) as caught:
        require_printable(text, "--region: ")
    assert str(caught.value) == (
        f"--region: {shown}, which can't be shown\n"
        "  why: it could pass for another name, and a machine could not read its boot configuration\n"
        "  fix: write it without that character"
    )


def test_several_lines_pass_where_they_may_stand() -> None:
    """As in a script; what a terminal obeys doesn't pass there either."""
    assert require_printable("a\n\tb", lines=True) == "a\n\tb"
    assert require_printable("plain") == "plain"
    with pytest.raises(BadRequestError, match=r"U\+001B"):
        require_printable("a\n\x1b[2J", lines=True)


def test_a_line_end_within_a_line_becomes_a_blank() -> None:
    """So that words don't run together."""
    assert clean_line("a\nb\tc") == "a b c"


def test_a_surrogate_is_shown_as_a_replacement_character() -> None:
    """From the first of them to the last."""
    assert clean("a\ud800b\udfffc") == "a\ufffdb\ufffdc"
