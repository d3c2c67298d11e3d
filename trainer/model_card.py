"""The model card: what was trained, on what, how well, and how to load it. Pure.

Its head is the Hugging Face Hub's metadata (https://huggingface.co/docs/hub/model-cards); it reads as well
without the Hub.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
        f"# {facts.name}",
        "",
        facts.description,
        "",
        f"- Parameters: {facts.parameters:,}",
        f"- Data: {facts.data or 'not said by the recipe'}",
        f"- License: {facts.license or 'not set: nobody may use these weights until it is'}",
        f"- Date: {facts.date}",
    ]


def _results(facts: CardFacts) -> list[str]:
    which = f"The best weights, after epoch {facts.epoch} of {facts.epochs}" if facts.epoch else "The last weights"
    rows = [f"| {name} | {value:.6g} |" for name, value in facts.metrics.items()]
    return ["## Results", "", f"{which} ({facts.steps:,} steps in all):", "", "| metric | value |", "|---|---|", *rows]


def _use(facts: CardFacts) -> list[str]:
    rows = [f"| `{name}` | {what} |" for name, what in facts.files.items()]
    code = [
        "```python",
        "from safetensors.torch import load_file",
        "",
        'weights = load_file("model.safetensors")',
        "```",
    ]
    return ["## Files", "", "| file | what |", "|---|---|", *rows, "", *code]


def _how(facts: CardFacts) -> list[str]:
    rows = [f"| `{key}` | {value} |" for key, value in facts.settings.items()]
    ran = f"Trained with kedge's `{facts.name}` recipe on {facts.device}; {facts.software}."
    return ["## Training", "", ran, "", "| setting | value |", "|---|---|", *rows]
