"""Prints docs/chaos-digitalocean.md: where random kills hit, and what was left after one `kedge reap`.

python -m tests.chaos.kill_table 100 10 > docs/chaos-digitalocean.md    # against the API alone, and with machines
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.cloud_kills import Kill, KillResult, draw, draw_with_machines, kill_and_reap, make_laptop
from tests.cloudbox.digitalocean.box import start_box


def main(kills: int, kills_with_machines: int) -> int:
    """Kill so many commands, print the tables, and return after how many kills something was left."""
    print(_HEAD.format(kills=kills, with_machines=kills_with_machines))
    bad = _kill_all([draw(number) for number in range(kills)], "Against the API alone")
    bad += _kill_all([draw_with_machines(number) for number in range(kills_with_machines)], "With machines")
    return bad


def _kill_all(kills: Sequence[Kill], title: str) -> int:
    results = []
    machines = any(kill.machines for kill in kills)
    with (
        tempfile.TemporaryDirectory(prefix="kedge-chaos-do-") as folder,
        start_box(Path(folder), machines=machines) as do,
    ):
        for kill in kills:
            do.reset()
            with make_laptop(do.environ) as laptop:
                results.append(kill_and_reap(do, laptop, kill))
            print(results[-1], file=sys.stderr, flush=True)
        do.reset()
    bad = sum(bool(result.left) for result in results)
    left = f"something was left after {bad}" if bad else "nothing was left after any"
    print(f"\n## {title}: {len(results)} kills, {left} of them\n")
    print(_COLUMNS)
    for result in results:
        print(f"| {' | '.join(_cells(result))} |")
    return bad


def _cells(result: KillResult) -> tuple[str, ...]:
    kill = result.kill
    return (
        str(kill.number),
        kill.during + (", slow" if kill.slow else ""),
        f"{kill.later_seconds:.1f} s" if kill.machines else f"{result.calls} calls",
        _without_ids(result.where),
        result.there or "nothing",
        f"{result.reap_seconds:.1f} s",
        "; ".join(result.left) or "nothing",
    )


_HEAD = """# Killed at random points

A test runs `kedge launch` or `kedge teardown` against DigitalOcean in a box, kills the command with SIGKILL at a
random point, and then runs `kedge reap --yes`. It looks for what is left: droplets, firewalls, volumes that were
not to be kept (each run has one that is kept and one that isn't), and in the ledger live runs, live machines and open
intents.

`python -m tests.chaos.kill_table {kills} {with_machines}` prints this page. Every test run repeats some of the same
kills (`tests/chaos/test_cloud_kills.py`).

- **Slow** means: for two seconds after a creation the API doesn't know the new droplet, and its listings lack it; for
  two seconds after a deletion the droplet is still there.
- **Against the API alone** reap runs at once. If the kill came between a refused creation and its answer, nobody knows
  that no droplet follows: that reap exits with 5, and a second one, 15 minutes later, cleans up. **With machines**
  droplets boot and train, and reap runs after their deadline. In both, reap's waits take a twentieth of their real
  time."""
_COLUMNS = """\
| kill | command | killed after | last call, or last entry in the ledger | what was billing then | reap took | left |
|---|---|---|---|---|---|---|"""


def _without_ids(path: str) -> str:
    """Replace ids by `ID`, so that rows can be compared."""
    return "/".join("ID" if any(letter.isdigit() for letter in part[2:]) else part for part in path.split("/"))


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
