"""The site's navigation: each page of the repository, where it is on the site, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "README.md": "quick-start",
        "docs/install.md": "install",
        "docs/your-script.md": "your-script",
        "docs/tasks.md": "tasks",
        "docs/workflows.md": "workflows",
        "docs/workflows/": "workflows/",
        "docs/export.md": "export",
        "docs/first-account.md": "first-account",
        "docs/troubleshooting.md": "troubleshooting",
    },
    "Reference": {
        "docs/job-file.md": "job-file",
        "(job keys)": "job-file-reference",
        "(commands)": "commands",
        "docs/json/README.md": "json",
        "trainer/README.md": "trainer",
    },
    "Providers": {
        "docs/providers.md": "providers",
        "docs/aws-permissions.md": "aws-permissions",
        "docs/aws-errors.md": "aws-errors",
        "docs/digitalocean.md": "digitalocean",
        "docs/lambda.md": "lambda",
    },
    "Money and safety": {
        "docs/guards.md": "guards",
        "docs/reaper.md": "reaper",
        "docs/security.md": "security",
        "SECURITY.md": "security-policy",
    },
    "How it is built": {
        "ARCHITECTURE.md": "architecture",
        "docs/architecture/": "architecture/",
        "docs/decisions/README.md": "decisions",
        "docs/decisions/": "decisions/",
        "CONTRIBUTING.md": "contributing",
        "CHANGELOG.md": "changelog",
    },
    "Evidence": {
        "docs/cloud-facts.md": "cloud-facts",
        "docs/aws-calls.md": "aws-calls",
        "docs/digitalocean-creation.md": "digitalocean-creation",
        "docs/chaos-digitalocean.md": "chaos-digitalocean",
        "tests/fuzz/RESULTS.md": "fuzz-results",
        "benchmarks/README.md": "benchmarks",
    },
}
"""Source and place of each page. A source that ends in / is a folder: its pages by name; one in () is generated."""

OPENED_BY = {"docs/workflows/": "workflows", "docs/architecture/": "architecture", "docs/decisions/": "decisions"}
"""Pages of these folders are listed below that page, and not beside it."""


def pages() -> dict[str, str]:
    """Return every page that is a file of the repository, with its place on the site."""
    return {source: place for sources in SECTIONS.values() for source, place in _expand(sources)}


def children(opener: str) -> list[str]:
    """Return the places that are listed below a page."""
    folders = [folder for folder, page in OPENED_BY.items() if page == opener]
    return [place for folder in folders for _, place in _in_folder(folder)]


def top_places(section: str) -> list[str]:
    """Return the places that a section lists."""
    return [place for source, place in SECTIONS[section].items() if source not in OPENED_BY]


def _expand(sources: dict[str, str]) -> Iterator[tuple[str, str]]:
    for source, place in sources.items():
        if source.endswith("/"):
            yield from _in_folder(source)
        elif not source.startswith("("):
            yield source, place


def _in_folder(folder: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / folder).glob("*.md")):
        if path.name != "README.md":
            yield f"{folder}{path.name}", f"{folder.removeprefix('docs/')}{path.stem}"
