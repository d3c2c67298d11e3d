"""The table of settings in the trainer's README, rendered from their declarations.

python -m tests.trainer.settings_table    writes it into the page
"""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from trainer.base.config import Settings
from trainer.base.setting import describe_settings

PAGE = Path(__file__).parents[2] / "trainer" / "README.md"
BEGIN, END = "<!-- settings: python -m tests.trainer.settings_table -->\n", "<!-- end of settings -->\n"


def render() -> str:
    """Render a row for each setting that every recipe has."""
    rows = [
        f"| `{each.key}` | {_render_default(each.default)} | {_render_choices(each.hint)}{each.meaning} |"
        for each in describe_settings(Settings())
    ]
    return "\n".join(["| `--set` | default | |", "|---|---|---|", *rows]) + "\n"


def read() -> str:
    """Return the table that the page has."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def _render_default(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _render_choices(hint: Any) -> str:
    if get_origin(hint) is not Literal:
        return ""
    return ", ".join(f"`{choice}`" for choice in get_args(hint) if choice) + ": "


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + render() + END + rest.partition(END)[2])
