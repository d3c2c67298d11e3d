"""Writes the site's sources into one folder: pages of the repository with the site's links, and generated ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from docs.site.commands import render_commands
from docs.site.job_keys import render_job_keys
from docs.site.links import FILES, Linker
from docs.site.navigation import OPENED_BY, ROOT, SECTIONS, children, pages, top_places
from orchestrator.adapters.jobfile.schema import job_schema
from orchestrator.cli.program import namespace

_FRONT = "README.md"
_NOT_ON_THE_SITE = "More"
"""The front page's list of other pages: the site has its navigation."""


class BrokenLinksError(Exception):
    """Pages link to files that aren't there."""


def stage(folder: Path) -> None:
    """Write all sources.

    Args:
        folder: is emptied first.

    Raises:
        BrokenLinksError: a page links to a file that isn't there.
    """
    shutil.rmtree(folder, ignore_errors=True)
    linker = Linker(root=ROOT, pages=pages())
    texts = {place: _read(source, place, linker) for source, place in linker.pages.items()}
    texts |= {"commands": render_commands(namespace), "job-file-reference": render_job_keys(job_schema())}
    texts["index"] = _front_page(linker)
    for place, text in texts.items():
        _write(folder / f"{place}.md", text)
    for path in linker.files:
        (folder / FILES / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / FILES / path)
    if linker.broken:
        raise BrokenLinksError("links to nothing:\n" + "\n".join(linker.broken))


def split_front_page(text: str) -> tuple[str, str]:
    """Divide README.md into what it says of kedge, and the quick start."""
    lead, _, rest = text.partition("\n## ")
    sections = [f"\n## {section}" for section in f"\n## {rest}".split("\n## ")[1:]]
    kept = [section for section in sections if section.splitlines()[1] != f"## {_NOT_ON_THE_SITE}"]
    return lead, "# Quick start\n" + "".join(kept)


def _read(source: str, place: str, linker: Linker) -> str:
    text = (ROOT / source).read_text()
    if source == _FRONT:
        _, text = split_front_page(text)
    below = children(place) if place in OPENED_BY.values() else []
    return linker.rewrite(text, source, place) + (_tree(below) if below else "")


def _front_page(linker: Linker) -> str:
    lead, _ = split_front_page((ROOT / _FRONT).read_text())
    parts = [linker.rewrite(lead, _FRONT, "index")]
    for section in SECTIONS:
        places = top_places(section)
        parts.append(f"\n## {section}\n\n" + "".join(f"- [](/{place}.md)\n" for place in places))
        parts.append(_tree(places, caption=section))
    return "".join(parts)


def _tree(places: Iterable[str], caption: str = "") -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(("", "```{toctree}", *options, "", *(f"/{place}" for place in places), "```", ""))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
