"""docs/security.md and the table of the secrets sweep agree on where each secret lives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.adapters.providers import PROVIDERS
from tests.sweep.table import CREDENTIALS, TABLE

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
LIVES = (ROOT / "tests/sweep/lives.py", *ROOT.glob("tests/*/*/test_secrets_sweep.py"))
NOT_SWEPT = {
    "~/.aws/cli/cache": "no life takes an MFA code",
    "~/.config/kedge/recover.env": "written by the user",
    "~/.config/kedge/reap.env": "written by the user",
    "/etc/kedge/reaper.env": "written by whoever runs the reaper",
    "/var/lib/kedge/incoming": "gone within seconds, before a life looks",
    "~/.netrc": "an example of what a job may write",
}
"""Places of the page that no life reaches, and why."""


def where_secrets_live() -> str:
    """Return the part of the page that says it."""
    return PAGE.read_text().partition("\n## Where each secret lives\n")[2].partition("\n## ")[0]


def test_the_page_says_what_the_sweep_allows() -> None:
    """Each row of the table has its words on the page."""
    said = " ".join(where_secrets_live().split())
    assert len(TABLE) > 40
    assert [row for row in TABLE if row.page not in said] == []


def test_the_sweep_allows_what_the_page_says() -> None:
    """Each path in the first column of its tables is a row's, or has a reason why no life reaches it."""
    cells = [line.split("|")[1] for line in where_secrets_live().splitlines() if line.startswith("|")]
    named = {path for cell in cells for path in re.findall(r"`((?:<|~|/)[^`]*)`", cell)}
    swept = " ".join(row.page for row in TABLE)
    assert len(named) > 8
    assert {path for path in named if f"`{path}`" not in swept} == set(NOT_SWEPT)


@pytest.mark.parametrize("provider", [name for name, entry in PROVIDERS.items() if entry.sign_in])
def test_the_credentials_of_every_provider_are_swept_and_on_the_page(provider: str) -> None:
    """A new cloud can't be forgotten. Names of one cloud have the same beginning."""
    sign_in = PROVIDERS[provider].sign_in
    assert sign_in
    prefix = f"{sign_in.variables[0].partition('_')[0]}_"
    assert [name for name in CREDENTIALS if name.startswith(prefix)]
    heading = next(line for line in where_secrets_live().splitlines() if line.startswith("### Cloud credentials"))
    assert f"`{prefix}" in heading.replace("AWS keys", "`AWS_*`")


@pytest.mark.parametrize("name", CREDENTIALS)
def test_every_credential_of_the_table_is_made_in_a_life(name: str) -> None:
    """The sweep searches only for secrets that a life has made."""
    assert len(LIVES) == 3
    assert any(f'"{name}"' in path.read_text() for path in LIVES)
