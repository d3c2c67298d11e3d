"""What a plan says of files that stay on the laptop, and of where a key was written."""

from __future__ import annotations

import pytest

from orchestrator.core.values.site import Site
from orchestrator.core.values.unsent import Unsent, UnsentPath, describe_unsent


def path(name: str, files: int = 1, *, is_whole: bool = True) -> UnsentPath:
    return UnsentPath(path=name, files=files, bytes=2000, is_whole=is_whole)


@pytest.mark.parametrize(
    ("unsent", "lines"),
    [
        (
            Unsent(by="git", files=1, bytes=2000, paths=(path("a"),)),
            ("not sent (see `data`): 1 file, 2.0 kB, ignored by git", "  a (2.0 kB)"),
        ),
        (
            Unsent(by="git", files=1500, bytes=9000, paths=(path("a/", 400), path("b", 100), path("c"), path("d"))),
            (
                "not sent (see `data`): 1,500 files, 9.0 kB, ignored by git",
                "  a/ (2.0 kB)",
                "  b (2.0 kB)",
                "  c (2.0 kB)",
                "  999 more",
            ),
        ),
        (
            Unsent(by="git", files=2, bytes=2000, paths=(path("a"),)),
            ("not sent (see `data`): 2 files, 2.0 kB, ignored by git", "  a (2.0 kB)", "  1 more"),
        ),
        (
            Unsent(by="git", files=3, bytes=9000, paths=(path("a/", 3, is_whole=False),), is_whole=False),
            ("not sent (see `data`): more than 3 files, 9.0 kB, ignored by git", "  a/ (more than 2.0 kB)"),
        ),
        (
            Unsent(by="git", files=2, bytes=2000, paths=(path("x" * 50), path("y" + "x" * 50))),
            (
                "not sent (see `data`): 2 files, 2.0 kB, ignored by git",
                f"  {'x' * 50} (2.0 kB)",
                f"  ...{'x' * 50} (2.0 kB)",
            ),
        ),
    ],
)
def test_files_that_are_not_sent_are_reported_and_the_largest_are_named(unsent: Unsent, lines: tuple[str, ...]) -> None:
    """Three by name, of a long name its end, and how many more there are."""
    assert describe_unsent(unsent) == lines


def test_a_message_begins_with_where_its_key_was_written() -> None:
    """File and line; nothing where they aren't known."""
    site = Site(said_at=(("vpc", "kedge.yaml:3"),))
    assert site.where("vpc") == "kedge.yaml:3: "
    assert site.where("subnets") == ""
