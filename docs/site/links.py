"""Turns the links of a page of the repository into links of the site."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_LINK = re.compile(r"(?P<bang>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"(^ *```.*?^ *```[^\n]*$)", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z]+:")
FILES = "files"
"""The folder of the site for files that pages link to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linker:
    """Rewrites links.

    Attributes:
        root: the repository.
        pages: the place on the site of each of its pages.
        files: what pages link to besides, relative to the repository; the linker adds to it.
        broken: links to nothing; the linker adds to it.
    """

    root: Path
    pages: Mapping[str, str]
    files: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    def rewrite(self, text: str, source: str, place: str) -> str:
        """Return a page's text with the site's links; code blocks stay as they are.

        Args:
            text: Markdown.
            source: the page, relative to the repository.
            place: where it is on the site.
        """
        # Outside of code, a link may go over the end of a line.
        parts = _CODE.split(text)
        parts[::2] = [_LINK.sub(lambda link: self._link(link, source, place), prose) for prose in parts[::2]]
        return "".join(parts).rstrip("\n") + "\n"

    def _link(self, link: re.Match[str], source: str, place: str) -> str:
        target, hash_, anchor = link["target"].partition("#")
        if not target or _ELSEWHERE.match(target):
            return link[0]
        path = os.path.normpath(PurePosixPath(source).parent / target)
        if path in self.pages:
            there = f"{self.pages[path]}.md"
        elif (self.root / path).is_file():
            self.files.add(path)
            there = f"{FILES}/{path}"
        elif (self.root / path).is_dir():
            return link["text"] if link["text"].strip("`") == path else f"{link['text']} (`{path}` in a checkout)"
        else:
            self.broken.append(f"{source}: {link[0]}")
            return link[0]
        # A file's name says nothing on a site: without a text the page's title is shown.
        text = "" if path in self.pages and link["text"] in {path, target} else link["text"]
        return f"{link['bang']}[{text}]({os.path.relpath(there, PurePosixPath(place).parent)}{hash_}{anchor})"
