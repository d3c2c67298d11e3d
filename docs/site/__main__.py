"""Builds the site: `make docs`. A warning fails it: a link or an anchor that leads nowhere, a page outside the menu."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.site.navigation import ROOT
from docs.site.stage import BrokenLinksError, stage

_BUILD = ROOT / "build" / "docs"
_STRICT = ("--fail-on-warning", "--keep-going", "--quiet")


def main() -> int:
    """Stage and build; return 0 if there was no warning."""
    begun = time.monotonic()
    shutil.rmtree(_BUILD, ignore_errors=True)
    try:
        stage(_BUILD / "sources")
    except BrokenLinksError as err:
        sys.stderr.write(f"{err}\n")
        return 1
    folders = [_BUILD / "sources", _BUILD / "site"]
    options = ["--conf-dir", Path(__file__).parent, "--doctree-dir", _BUILD / "doctrees"]
    code: int = build_main([*_STRICT, *map(str, options), *map(str, folders)])
    if code == 0:
        pages = len(list((_BUILD / "sources").rglob("*.md")))
        took = time.monotonic() - begun
        sys.stdout.write(f"{pages} pages in {took:.1f} s: {_BUILD / 'site' / 'index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
