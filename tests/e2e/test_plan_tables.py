"""`kedge plan --all-modes` and `--offers`: tables of a job before a launch, from what a plan asks anyway."""

from __future__ import annotations

import pytest

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.support.laptop import Laptop
from tests.support.terminals import on_terminal

JOB = """
    name: fresnel
    run: "true"
    resources: {infra: %s}
    expect: {basis: published}
    supervisor: {kind: nohup, restarts: 0}
    budget: 500
    modes:
      validate: {deadline: 30m, expect: {duration: 5m, runs: 6}}
      fast: {deadline: 4h, expect: {duration: 2h, runs: 4}}
      standard: {deadline: 9h, expect: {duration: 6h, runs: 2}}
      full: {deadline: 16h, expect: {duration: 12h}}
      custom: {arguments: [EPOCHS, BATCH, PIXELS], deadline: 10h}
      short: {deadline: 10m, expect: {duration: 1h, runs: 0}}
      costly: {deadline: 16h, budget: 1}
"""
AT_199 = ("--price", "1.99")


@pytest.fixture
def fresnel(laptop: Laptop) -> Laptop:
    laptop.write_job(JOB % "local")
    return laptop


def test_the_modes_are_added_up_against_the_budget(fresnel: Laptop) -> None:
    """The table of fresnel's $100: validation 1, fast x4 16, standard x2 24, final 24."""
    table = fresnel.json("plan", "--all-modes", "--budget", "100", *AT_199)
    rows = {row["mode"]: row for row in table["modes"]}
    assert [round(float(row["planned_usd"] or 0)) for row in table["modes"]] == [1, 16, 24, 24, 0, 0, 0]
    assert [row["runs"] for row in table["modes"]] == [6, 4, 2, 1, 0, 0, 1]
    assert float(rows["full"]["total_usd"]) == pytest.approx(1.99 * (0.5 + 8 + 12 + 12))
    assert rows["full"]["worst_usd"] == "31.84"
    assert {row["source"] for row in table["modes"][:4]} == {"published"}
    custom = rows["custom EPOCHS BATCH PIXELS"]
    assert (custom["expected_seconds"], custom["usd"], custom["worst_usd"]) == (None, None, "19.9")
    assert "expected to take 1h, but its machine is gone in 10m" in rows["short"]["problem"]
    assert "the worst case costs $31.84, over the budget of $1.00" in rows["costly"]["problem"]
    # Nobody knows what `costly` takes, so the sum is unknown, and the buffer too.
    assert (table["budget_usd"], table["planned_usd"], table["buffer_usd"]) == ("100", None, None)
    fresnel.write_job((JOB % "local").replace("budget: 1}", "budget: 1, expect: {runs: 0}}"))
    table = fresnel.json("plan", "--all-modes", "--budget", "100", *AT_199)
    assert float(table["buffer_usd"]) == pytest.approx(100 - 1.99 * 32.5)
    # The job's own budget is for one run.
    assert fresnel.json("plan", "--all-modes", *AT_199)["budget_usd"] is None
    fresnel.write_job((JOB % "local").replace("{basis: published}", "{basis: published, budget: 100}"))
    assert fresnel.json("plan", "--all-modes", *AT_199)["budget_usd"] == "100"
    shown = fresnel.kedge("plan", "--all-modes", *AT_199)
    assert "The planned runs cost an unknown amount: nothing says what those of costly cost." in shown
    fresnel.write_job((JOB % "local").replace("budget: 1}", "budget: 1, expect: {runs: 0}}"))
    shown = fresnel.kedge("plan", "--all-modes", "--budget", "60", *AT_199)
    assert "The planned runs cost $4.68 more than the budget." in shown
    assert "p: published, by the job file's `expect`; ?: unknown until a run has been measured there" in shown
    assert not list((fresnel.state / "machines").glob("*"))
    assert fresnel.json("status", "--all") == []


def test_what_a_run_took_is_shown_as_measured(laptop: Laptop) -> None:
    """In the plan and in both tables, whatever the file says."""
    laptop.write_job(JOB % "local")
    before = laptop.json("plan", "--mode", "fast")
    assert (before["expected_seconds"], before["basis"].split("; ")[1]) == (
        7200,
        "time: the job file's `expect`, published",
    )
    laptop.kedge("launch", "--mode", "fast", "--yes")
    plan = laptop.json("plan", "--mode", "fast")
    assert plan["basis"].endswith("time: measured, in earlier runs of this job and mode on local")
    assert plan["expected_seconds"] < 600
    rows = {row["mode"]: row for row in laptop.json("plan", "--all-modes")["modes"]}
    assert [rows[mode]["source"] for mode in ("fast", "standard")] == ["measured", "published"]
    (row,) = laptop.json("plan", "--offers")["offers"]
    assert row["modes"]["fast"]["source"] == "measured"
    assert row["modes"]["fast"]["expected_seconds"] == plan["expected_seconds"]


def test_machines_and_modes_make_a_table_without_guesses(laptop: Laptop, lambda_api: LambdaBox) -> None:
    """The file's time is for its own GPUs: other machines with the same have it too, marked, all others `?`."""
    laptop.extra_env |= lambda_api.environ
    laptop.write_job((JOB % "lambda, accelerators: A10").replace("budget: 500", ""))
    table = laptop.json("plan", "--offers")
    assert table["modes"][:2] == ["validate", "fast"]
    (row,) = [row for row in table["offers"] if row["offer"]["instance_type"] == "gpu_1x_a10"]
    fast = row["modes"]["fast"]
    assert (fast["expected_seconds"], fast["source"], fast["same_gpus"]) == (7200, "published", False)
    assert float(fast["usd"]) == pytest.approx(2 * float(row["offer"]["usd_per_hour"]))
    assert row["modes"]["custom EPOCHS BATCH PIXELS"] is None
    for other in laptop.json("plan", "--offers", "--gpu", "a100")["offers"]:
        assert other["offer"]["accelerators"]["name"].startswith("a100")
        assert not any(other["modes"].values())
    shown = laptop.kedge("plan", "--offers", "--mode", "fast")
    assert "gpu_1x_a10  lambda/" in shown
    assert "2h, $2.58 (p)" in shown


def test_machines_that_a_launch_would_refuse_are_marked(laptop: Laptop, lambda_api: LambdaBox) -> None:
    """In the worst case they cost more than the mode's budget."""
    laptop.extra_env |= lambda_api.environ
    laptop.write_job((JOB % "lambda, accelerators: A10").replace("budget: 500", ""))
    (row,) = [row for row in laptop.json("plan", "--offers")["offers"] if row["offer"]["accelerators"]["name"] == "a10"]
    assert row["over_budget"] == ["costly"]
    shown = laptop.kedge("plan", "--offers", "--mode", "costly")
    assert "?!" in shown
    assert "!: refused there, because the worst case is over the mode's budget" in shown
    laptop.kedge("plan", "--mode", "costly", "--ssh-from", "203.0.113.7/32", "--without-reaper", code=4)


def test_a_table_asks_the_provider_no_more_than_a_plan(laptop: Laptop, lambda_api: LambdaBox) -> None:
    """Once for all modes that want the same machine."""
    laptop.extra_env |= lambda_api.environ
    laptop.write_job((JOB % "lambda, accelerators: A10").replace("budget: 500", ""))

    def calls(*words: str) -> list[tuple[str, str]]:
        lambda_api.calls.reset()
        laptop.kedge("plan", *words)
        return [(call.method, call.path) for call in lambda_api.calls]

    alone = calls("--mode", "fast", "--without-reaper", "--ssh-from", "203.0.113.7/32")
    assert alone
    assert {method for method, _ in alone} == {"GET"}
    for table in ("--all-modes", "--offers"):
        asked = calls(table)
        assert asked
        assert len(asked) <= len(alone)
        assert set(asked) <= set(alone)


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("table", ["--all-modes", "--offers"])
def test_the_tables_fit_the_terminal(fresnel: Laptop, table: str, columns: int) -> None:
    """Narrow ones fold cells, or write a paragraph for each row."""
    argv = [*fresnel.program, "plan", table, "--budget", "100", *AT_199]
    code, shown = on_terminal(argv, cwd=fresnel.home, env=fresnel.env, columns=columns)
    assert code == 0, shown
    assert [line for line in shown.splitlines() if len(line) > columns] == []
    assert all(mode in shown for mode in ("validate", "fast", "standard", "full", "custom"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--all-modes", "--offers"), "--all-modes and --offers are two tables"),
        (("--all-modes", "--mode", "fast"), "--mode chooses among the modes that the table lists"),
        (("--offers", "--modes", "fast,full"), "--modes chooses among the modes that the table lists"),
        (("--all-modes", "--gpu", "h100"), "none of the modes can be launched"),
        (("--offers", "--mode", "nope"), "has no mode 'nope'"),
    ],
)
def test_flags_that_contradict_a_table_are_refused(fresnel: Laptop, words: tuple[str, ...], said: str) -> None:
    """Before anything is asked."""
    fresnel.kedge("plan", *words, code=2)
    assert said in fresnel.errors


def test_what_keeps_several_modes_from_a_launch_is_said_once(laptop: Laptop) -> None:
    """With its fix, if nothing else keeps the other modes from it."""
    laptop.write_job("name: toy\nrun: x\nmodes: {a: {secrets: [TOKEN]}, b: {secrets: [TOKEN]}, c: {}}\n")
    for table in ("--all-modes", "--offers"):
        shown = laptop.kedge("plan", table, "--price", "2")
        assert "a, b:" not in shown, "each is named with its own line"
        assert shown.count("TOKEN isn't set") == 2
    shared = "name: toy\nrun: x\ndata: {there: none}\nmodes: {a: {}, b: {}%s}\n"
    laptop.write_job(shared % "")
    for table in ("--all-modes", "--offers"):
        laptop.kedge("plan", table, "--price", "2", code=2)
        assert "why: a, b: " in laptop.errors
        assert "fix: correct the path, or make the folder" in laptop.errors
    laptop.write_job(shared % ", c: {secrets: [TOKEN]}")
    laptop.kedge("plan", "--all-modes", "--price", "2", code=2)
    assert "or look at one of them with `kedge plan --mode`" in laptop.errors


def test_a_job_without_modes_has_no_table_of_them(laptop: Laptop) -> None:
    """But one of machines, with a column that is called as the job."""
    laptop.write_job("name: toy\nrun: x\nexpect: {duration: 30m}\n")
    laptop.kedge("plan", "--all-modes", code=2)
    assert "has no `modes`" in laptop.errors
    table = laptop.json("plan", "--offers", "--price", "2")
    assert table["modes"] == ["toy"]
    assert (table["offers"][0]["modes"]["toy"]["usd"], table["offers"][0]["modes"]["toy"]["source"]) == (
        "1",
        "job file",
    )
