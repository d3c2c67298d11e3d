"""The sentences of a model's documentation strings, and which of them constrain a value."""

from __future__ import annotations

import html
import re
from functools import cache

_BLOCK_ENDS = re.compile(r"</(p|li|ul|ol|dt|dd|note)>|<br ?/?>")
_CODE = re.compile(r"<code>\s*(.*?)\s*</code>", re.DOTALL)
_TAGS = re.compile(r"<[^>]+>")
_ENDS = re.compile(r"(?<=[.;])\s+(?=[A-Z`])")
_CONSTRAINS = re.compile(
    r"\bconstraints?:|characters|\blength\b|\b(valid|allowed|possible|accepted) (values|ranges?|sizes)\b"
    r"|\bmust(n't)? |\bmay not\b|\bcannot\b|\bcan't\b"
    r"|\b(maximum|minimum) (of|value|size|\d)|\bm(ax|in): |\bup to \d|\bbetween \d"
    r"|\d`?(?: ?\(default\))?`? ?- `?\d"
    r"|\bone of the following\b|\bnot both\b|\bonly one of\b"
    r"|\bvalid only\b|\b(supported|volumes) only\b|\bwell-formed\b",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(constraints?|valid (ranges?|sizes|values)|possible values)( are| include)?:?", re.IGNORECASE)


@cache
def sentences(documentation: str) -> tuple[str, ...]:
    """Split a documentation string; what is code there stands between backticks here."""
    text = _CODE.sub(r"`\1`", documentation)
    blocks = html.unescape(_TAGS.sub("", _BLOCK_ENDS.sub("\n", text))).split("\n")
    return tuple(
        sentence for block in blocks for sentence in (" ".join(part.split()) for part in _ENDS.split(block)) if sentence
    )


@cache
def constraining(documentation: str) -> tuple[str, ...]:
    """Return the sentences that say what a value must be like, or seem to; headings of lists aren't among them."""
    return tuple(
        sentence
        for sentence in sentences(documentation)
        if _CONSTRAINS.search(sentence) and not _HEADING.fullmatch(sentence)
    )
