"""The model card: what was trained, on what, how well, and how to load it. Pure.

Its head is the Hugging Face Hub's metadata (https://huggingface.co/docs/hub/model-cards); it reads as well
without the Hub. Values are shown as they are: none of them is taken for Markdown or HTML.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.errors import visible

# What CommonMark, tables and GitHub's mathematics take for more than text; a link needs one of three behind its `]`.
_MARKUP = re.compile(r"[\\`*_<>&|~#$]|\](?=[\[(:])")
# A line that begins so is a list, or makes a heading of what stands before it.
_LINE_START = re.compile(r"^(\d*)([-+=.)])")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What the card says. `metrics` are those of the weights that are handed out; `date` is ISO 8601."""

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


def render_card(facts: CardFacts) -> str:
    """Write the card as Markdown with a YAML head."""
    return "\n".join(
        [*_head(facts), "", *_summary(facts), "", *_results(facts), "", *_use(facts), "", *_how(facts), ""]
    )


def _head(facts: CardFacts) -> list[str]:
    # JSON is YAML: nothing in a name can break out of it.
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
        f"- Data: {_text(facts.data) or 'not said by the recipe'}",
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
    return ["## Training", "", ran, "", "| setting | value |", "|---|---|", *rows]


def _text(value: Any) -> str:
    """Write a value as text in one line."""
    return _MARKUP.sub(r"\\\g<0>", _in_one_line(value))


def _code(value: Any) -> str:
    """Write a value as code in one line, between more backticks than it has in a row."""
    text = _in_one_line(value)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    around = " " if "`" in text else ""
    return f"{fence}{around}{text}{around}{fence}"


def _code_cell(value: Any) -> str:
    """Write a value as code in a table, which is cut into cells before anything else is looked at."""
    return _code(value).replace("|", r"\|")


def _in_one_line(value: Any) -> str:
    return visible(" ".join(str(value).split()))
