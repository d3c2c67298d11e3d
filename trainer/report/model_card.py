"""Renders the model card: what was trained, on which data, how well, and how to load it. Pure.

Its YAML head is the Hugging Face Hub's metadata (https://huggingface.co/docs/hub/model-cards); it is readable
without the Hub too. Values are escaped, so that none is interpreted as Markdown or HTML.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.base.errors import visible

# The characters with a meaning in CommonMark, tables and GitHub's mathematics; a link needs one of three after its `]`.
_MARKUP = re.compile(r"[\\`*_<>&|~#$]|\](?=[\[(:])")
# The start of a line that is a list item, or that turns the line before it into a heading.
_LINE_START = re.compile(r"^(\d*)([-+=.)])")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """The card's facts. `metrics` are those of the published weights; `date` is ISO 8601."""

    name: str
    description: str
    license: str
    data: str
    date: str
    parameters: int
    epoch: int
    epochs: int
    steps: int
    metrics: Mapping[str, float]
    settings: Mapping[str, Any]
    software: str
    device: str
    files: Mapping[str, str]
    started_from: str = ""


def render_card(facts: CardFacts) -> str:
    """Render the card as Markdown with a YAML head."""
    return "\n".join(
        [*_head(facts), "", *_summary(facts), "", *_results(facts), "", *_use(facts), "", *_how(facts), ""]
    )


def _head(facts: CardFacts) -> list[str]:
    # JSON is valid YAML, and its quoting keeps a name from breaking out.
    lines = ["---", f"license: {json.dumps(facts.license or 'unknown')}", "library_name: pytorch"]
    lines += ["tags:", "- kedge", f"- {json.dumps(facts.name)}", "model-index:", f"- name: {json.dumps(facts.name)}"]
    lines += ["  results:", "  - task:", "      type: other", "    dataset:"]
    lines += [f"      name: {json.dumps(facts.data or facts.name)}", f"      type: {json.dumps(facts.name)}"]
    lines += ["    metrics:"]
    for name, value in facts.metrics.items():
        lines += [f"    - type: {json.dumps(name)}", f"      value: {json.dumps(value)}"]
    return [*lines, "---"]


def _summary(facts: CardFacts) -> list[str]:
    return [
        f"# {_text(facts.name)}",
        "",
        _LINE_START.sub(r"\1\\\2", _text(facts.description)),
        "",
        f"- Parameters: {facts.parameters:,}",
        f"- Data: {_text(facts.data) or 'not described by the recipe'}",
        f"- License: {_text(facts.license) or 'not set: nobody may use these weights until it is'}",
        f"- Date: {_text(facts.date)}",
    ]


def _results(facts: CardFacts) -> list[str]:
    which = f"The best weights, after epoch {facts.epoch} of {facts.epochs}" if facts.epoch else "The last weights"
    rows = [f"| {_text(name)} | {value:.6g} |" for name, value in facts.metrics.items()]
    return ["## Results", "", f"{which} ({facts.steps:,} steps in all):", "", "| metric | value |", "|---|---|", *rows]


def _use(facts: CardFacts) -> list[str]:
    rows = [f"| {_code_cell(name)} | {_text(what)} |" for name, what in facts.files.items()]
    code = [
        "```python",
        "from safetensors.torch import load_file",
        "",
        'weights = load_file("model.safetensors")',
        "```",
    ]
    return ["## Files", "", "| file | what |", "|---|---|", *rows, "", *code]


def _how(facts: CardFacts) -> list[str]:
    rows = [f"| {_code_cell(key)} | {_text(value)} |" for key, value in facts.settings.items()]
    ran = f"Trained with kedge's {_code(facts.name)} recipe on {_text(facts.device)}; {_text(facts.software)}."
    started = [f"Started from {_code(facts.started_from)}.", ""] if facts.started_from else []
    return ["## Training", "", ran, "", *started, "| setting | value |", "|---|---|", *rows]


def _text(value: Any) -> str:
    """Render a value as text on one line."""
    return _MARKUP.sub(r"\\\g<0>", _in_one_line(value))


def _code(value: Any) -> str:
    """Render a value as code on one line, between more backticks than it has in a row."""
    text = _in_one_line(value)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    around = " " if "`" in text else ""
    return f"{fence}{around}{text}{around}{fence}"


def _code_cell(value: Any) -> str:
    """Render a value as code in a table cell, where a `|` splits cells even within code."""
    return _code(value).replace("|", r"\|")


def _in_one_line(value: Any) -> str:
    return visible(" ".join(str(value).split()))
