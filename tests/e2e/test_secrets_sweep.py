"""A whole life on this computer, with secrets in all possible places: each is only where docs/security.md says."""

from __future__ import annotations

from pathlib import Path

from tests.support.laptop import Laptop
from tests.sweep.lives import living
from tests.sweep.table import assert_allowed


def test_no_secret_is_found_in_a_place_that_the_page_does_not_list(laptop: Laptop, tmp_path: Path) -> None:
    """Planned, launched, queried, changed, stopped, ended without its results, resumed from a checkpoint, ended."""
    with living(laptop, tmp_path, supervisor="tmux") as life:
        life.begin()
        life.kedge("doctor", code=None)
        life.change()
        life.kedge("fetch")
        life.search_laptop()
        life.kedge("teardown", "--yes", "--no-fetch")
        life.kedge("resume", "--yes", "--detach", "--keep")
        life.fail_unexpectedly()
        life.kedge("teardown", "--yes")
        life.end()
    assert_allowed(life.found, life.secrets.names, "local")
