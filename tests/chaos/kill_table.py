"""Prints docs/chaos-digitalocean.md: what random blows hit, and what was left after one `kedge reap`.

python -m tests.chaos.kill_table 100 10 > docs/chaos-digitalocean.md    # against the API alone, and with machines
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.cloud_kills import Blow, Story, draw, draw_with_machines, make_laptop, strike
from tests.cloudbox.digitalocean.box import start_box


def main(blows: int, blows_with_machines: int) -> int:
    """Strike so many times, print the tables, and return how often something was left."""
    print(_HEAD.format(blows=blows, with_machines=blows_with_machines))
    bad = _strike_all([draw(number) for number in range(blows)], "Against the API alone")
    bad += _strike_all([draw_with_machines(number) for number in range(blows_with_machines)], "With machines")
    return bad


def _strike_all(blows: Sequence[Blow], title: str) -> int:
    stories = []
    machines = any(blow.machines for blow in blows)
    with (
        tempfile.TemporaryDirectory(prefix="kedge-chaos-do-") as folder,
        start_box(Path(folder), machines=machines) as do,
    ):
        for blow in blows:
            do.reset()
            with make_laptop(do) as laptop:
                stories.append(strike(do, laptop, blow))
            print(stories[-1], file=sys.stderr, flush=True)
        do.reset()
    bad = sum(bool(story.left) for story in stories)
    print(f"\n## {title}: {len(stories)} blows, something was left after {bad or 'none'} of them\n")
    print(_COLUMNS)
    for story in stories:
        print(f"| {' | '.join(_cells(story))} |")
    return bad


def _cells(story: Story) -> tuple[str, ...]:
    blow = story.blow
    return (
        str(blow.number),
        blow.during + (", slow" if blow.slow else ""),
        f"{blow.later_seconds:.1f} s" if blow.machines else f"{story.calls} calls",
        _without_ids(story.where),
        story.there or "nothing",
        f"{story.reap_seconds:.1f} s",
        "; ".join(story.left) or "nothing",
    )


_HEAD = """# Killed at random points

`kedge launch` and `kedge teardown` at DigitalOcean in a box, killed with SIGKILL at random points, and `kedge reap
--yes` given once after each. Looked for are droplets, firewalls, volumes that weren't to be kept (each run has one that
is, and one that isn't), and live runs, live machines and open intents in the ledger.

Printed by `python -m tests.chaos.kill_table {blows} {with_machines}`; a part of the same blows falls with every test
run (`tests/chaos/test_cloud_kills.py`). In the slow ones a droplet is unknown to the API and missing in its listings
for two seconds after its creation, and there for two seconds after its deletion. With machines, droplets boot and
train, and reap comes after their deadline; otherwise it comes at once. What it waits for, it waits for at twenty times
the speed."""
_COLUMNS = """| blow | killed in | after | the last call, or entry of the ledger | what billed then | reap took | left |
|---|---|---|---|---|---|---|"""


def _without_ids(path: str) -> str:
    """Name an endpoint, so that rows can be compared."""
    return "/".join("ID" if any(letter.isdigit() for letter in part[2:]) else part for part in path.split("/"))


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
