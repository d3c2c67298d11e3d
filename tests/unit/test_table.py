"""Tables on terminals of any width."""

from __future__ import annotations

from orchestrator.cli.table import Table


def make_table() -> Table:
    table = Table("", "zone", "what", "fix")
    table.add_row(
        "!!", "us-east-1/use1-az1", "no quota for so many vCPUs", "ask for more at https://console.aws/quotas/L-1"
    )
    table.add_row("ok", "us-west-2/usw2-az1", "there", "")
    return table


def test_a_table_that_has_room_has_a_line_for_each_row() -> None:
    """As in a pipe, where the width is nobody's business."""
    names, first, second = make_table().lines()
    assert first.endswith("so many vCPUs  ask for more at https://console.aws/quotas/L-1")
    assert names.index("what") == first.index("no quota") == second.index("there")


def test_a_narrow_terminal_folds_cells_between_words_and_loses_nothing() -> None:
    """Names stay whole; only words of more than 24 letters may be broken."""
    lines = make_table().lines(80)
    assert max(map(len, lines)) <= 80
    assert sum("us-east-1/use1-az1" in line for line in lines) == 1
    wide = make_table().lines()
    assert sorted("".join("".join(lines).split())) == sorted("".join("".join(wide).split()))


def test_a_terminal_that_has_no_room_for_the_words_gets_the_lines_as_they_are() -> None:
    """The terminal folds them: what is copied from it is whole."""
    assert make_table().lines(40) == make_table().lines()
