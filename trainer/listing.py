"""What the command line prints about recipes and their settings."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from textwrap import TextWrapper, wrap

from trainer.base.errors import visible
from trainer.base.setting import DescribedSetting, describe_type, show_value
from trainer.recipes import ListedRecipe

_INDENT = " " * 6
_NARROWEST = 30


def render_recipes(recipes: Sequence[ListedRecipe]) -> str:
    """Render a line for each recipe: its name, its description, and where it comes from."""
    rows = [(visible(each.name), f"{visible(each.description)} ({visible(each.origin)})".strip()) for each in recipes]
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:{width}}  {text}\n" for name, text in rows)


def render_recipes_as_json(recipes: Sequence[ListedRecipe]) -> str:
    """Render a list of objects with name, origin and description."""
    return f"{json.dumps([asdict(each) for each in recipes], indent=2)}\n"


def render_settings(title: str, settings: Sequence[DescribedSetting], *, width: int) -> str:
    """Render every setting with its default, its type and its meaning, group by group.

    Args:
        title: names the recipe.
        settings: in order; those of a group follow one another.
        width: of the terminal, in characters.
    """
    width = max(width, _NARROWEST)
    lines = wrap(title, width)
    for _, group in groupby(settings, key=lambda each: each.key.rpartition(".")[0]):
        members = list(group)
        lines += ["", *wrap(members[0].group, width), *(line for each in members for line in _lines(each, width))]
    return visible("\n".join(lines)) + "\n"


def _lines(setting: DescribedSetting, width: int) -> Iterator[str]:
    head = f"{setting.key}={show_value(setting.default)}"
    kind = ", ".join(filter(None, (describe_type(setting.hint), setting.bounds)))
    for text, indent in ((f"{head} ({kind})", "  "), (setting.meaning, _INDENT)):
        wrapper = TextWrapper(width, initial_indent=indent, subsequent_indent=_INDENT, break_on_hyphens=False)
        yield from wrapper.wrap(text)
