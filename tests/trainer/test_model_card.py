"""A model card shows names, settings and recipes' texts literally, in any viewer."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from trainer.report.model_card import CardFacts, render_card

PLAIN = CardFacts(
    name="digits",
    description="Trains on digits.",
    license="mit",
    data="digits",
    date="2026-11-22",
    parameters=10,
    epoch=1,
    epochs=2,
    steps=3,
    metrics={"accuracy": 0.5},
    settings={"optimizer": "adamw"},
    software="torch 2.9",
    device="cpu",
    files={"model.safetensors": "the weights"},
)


def tags(page: str) -> list[str]:
    return re.findall(r"</?([a-z0-9]+)", page)


def show(facts: CardFacts) -> str:
    """Render the card's Markdown as a web page that allows HTML."""
    _, _, body = render_card(facts).partition("\n---\n")
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(body))


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "<!-- hidden",
        "&lt;script&gt;",
        "[click](https://example.org)",
        "![seen](https://example.org/pixel.png)",
        "[a]: https://example.org",
        "[click][a]",
        "<https://example.org>",
        "| more | cells |",
        "a \\| b",
        "`code` and ``more``",
        "**bold** __bold__ *lean* ~~gone~~",
        "- a list",
        "1. a list",
        "# a heading #",
        "---",
        "===",
        "> said",
        "computed: sin on [-3, 3]",
        "C:\\new\\",
    ],
)
def test_no_value_is_markup(text: str) -> None:
    """The page has the same elements as with plain words, and all of the text."""
    facts = replace(
        PLAIN,
        name=text,
        description=text,
        license=text,
        data=text,
        date=text,
        metrics={text: 0.5},
        settings={text: text},
        software=text,
        device=text,
        files={text: text},
    )
    page = show(facts)
    assert tags(page) == tags(show(PLAIN))
    assert html.unescape(re.sub(r"</?[a-z0-9]+( style=\"[^\"]*\")?>", "", page)).count(text) == 13


def test_no_value_has_several_lines_or_control_characters() -> None:
    """A text that would start a new block stays on its line; invisible characters are shown as escapes."""
    page = show(replace(PLAIN, description="a\n\n# b\n\n\tc \x1b[31m \u202e", settings={"x": "a\n| b | c |"}))
    assert tags(page) == tags(show(PLAIN))
    assert "a # b c \\x1b[31m \\u202e" in page
