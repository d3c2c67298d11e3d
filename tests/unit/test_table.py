"""Tables on terminals of any width."""

from __future__ import annotations

import pytest

from orchestrator.cli.terminal.table import Table

RUN = "nanogpt-shakespeare-char-level-1122-k3f9"
TYPE = "gpu-mi300x8-1536gb-devcloud-contracted"
REGION = "us-gov-west-1/usgw1-az1"


def make_table() -> Table:
    table = Table("", "zone", "what", "fix")
    table.add_row(
        "!!", "us-east-1/use1-az1", "no quota for so many vCPUs", "ask for more at https://console.aws/quotas/L-1"
    )
    table.add_row("ok", "us-west-2/usw2-az1", "there", "")
    return table


def make_status() -> Table:
    columns = ("run", "state", "progress", "machine", "age", "cost", "gone in")
    table = Table(*columns, names=("run", "state", "machine"))
    table.add_row(RUN, "running", "step 120/5000  loss 1.2345", "local (ready)", "1h 3m", "$12.05", "22h 10m")
    table.add_row("toy-1122-aaaa", "succeeded", "-", "-", "2h 1m", "$0.10", "-")
    return table


def make_offers() -> Table:
    table = Table("provider", "region", "type", "price/h", names=("provider", "region", "type"))
    table.add_row("amd", REGION, f"{TYPE} (spot)", "$15.92")
    return table


def test_a_table_that_has_room_has_a_line_for_each_row() -> None:
    """In a pipe too, where there is no width."""
    names, first, second = make_table().lines()
    assert first.endswith("so many vCPUs  ask for more at https://console.aws/quotas/L-1")
    assert names.index("what") == first.index("no quota") == second.index("there")


def test_a_narrow_terminal_folds_cells_between_words_and_loses_nothing() -> None:
    """Only words of more than 24 letters may be broken, and not those of names."""
    lines = make_table().lines(80)
    assert max(map(len, lines)) <= 80
    assert sum("us-east-1/use1-az1" in line for line in lines) == 1
    wide = make_table().lines()
    assert sorted("".join("".join(lines).split())) == sorted("".join("".join(wide).split()))


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_names_are_whole_on_any_terminal_and_nothing_else_is_too_wide(columns: int) -> None:
    """The name of a run, a region and a type can be copied from one line; the other columns give way."""
    for table, names in ((make_status(), (RUN, "toy-1122-aaaa")), (make_offers(), (REGION, TYPE))):
        lines = table.lines(columns)
        for name in names:
            assert sum(name in line.split() for line in lines) == 1, lines
        assert [line for line in lines if len(line) > columns and not any(name in line for name in names)] == []


def test_on_the_narrowest_terminals_each_row_is_a_paragraph() -> None:
    """The columns' names stand beside the cells; an empty cell takes no line."""
    assert make_status().lines(60)[:4] == [
        RUN,
        "  state     running",
        "  progress  step 120/5000  loss 1.2345",
        "  machine   local (ready)",
    ]
    assert make_table().lines(40)[:5] == [
        "!!  us-east-1/use1-az1",
        "  what  no quota for so many vCPUs",
        "  fix   ask for more at",
        "        https://console.aws/quotas/L-1",
        "ok  us-west-2/usw2-az1",
    ]
