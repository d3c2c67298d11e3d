"""Run random sequences of faults around the creation of one machine, and check what is left.

`python -m tests.adapters.digitalocean.sequences --count 500 --seed 1` runs many sequences and prints a table.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from orchestrator.core.errors import KedgeError, StillBillingError
from tests.adapters.digitalocean.doomed import Doomed, doomed_commands
from tests.adapters.digitalocean.world import M1, RUN, DoWorld, restock_mi300x
from tests.cloudbox.digitalocean.box import DigitalOceanBox, start_box

DROPLETS = "/v2/droplets"
STEPS = (
    "answered",
    "dropped before",
    "dropped after",
    "500 before",
    "500 after",
    "503 before",
    "504 after",
    "429",
    "429 with Retry-After",
    "sold out",
    "killed before",
    "killed after",
    "race of two laptops",
    "race of two commands",
    "race, one answer dropped",
)
"""What happens to one attempt to create the machine."""
LAGS = (0, 0, 20, 60)
"""Seconds for which a new droplet is unknown by its id, and missing in listings."""

KEY_LAGS = (0, 10)
"""Seconds until creations accept the laptop's new SSH key."""

_LONGER_THAN_UNCLEAR = timedelta(minutes=16)
_MOST_ATTEMPTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSequence:
    """What happens to each attempt, before a last command runs without faults."""

    steps: tuple[str, ...]
    unknown_seconds: int = 0
    unlisted_seconds: int = 0
    key_seconds: int = 0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What exists after the last command got its machine.

    Attributes:
        droplets: the number of existing droplets of the machine.
        owned: how many of them have the run's tag.
        attempts: how many attempts the last command needed.
        after: what is left in the account after the run's teardown.
    """

    droplets: int
    owned: int
    attempts: int
    after: list[str] = field(default_factory=list)


def draw(source: random.Random) -> FaultSequence:
    """Draw a sequence."""
    steps = tuple(source.choice(STEPS) for _ in range(source.randint(1, 4)))
    return FaultSequence(
        steps=steps,
        unknown_seconds=source.choice(LAGS),
        unlisted_seconds=source.choice(LAGS),
        key_seconds=source.choice(KEY_LAGS),
    )


def run_sequence(api: DigitalOceanBox, folder: Path, doomed: Doomed, sequence: FaultSequence) -> Outcome:
    """Run a sequence in its own account; then create the machine without faults, and tear it down."""
    api.reset()
    restock_mi300x(api)
    api.settings.not_found_seconds = sequence.unknown_seconds
    api.settings.unlisted_seconds = sequence.unlisted_seconds
    api.settings.key_seconds = sequence.key_seconds
    world = DoWorld(api=api, folder=folder)
    for step in sequence.steps:
        _ACTIONS[step](world, doomed)
        api.faults.clear()
        api.restock()
    attempts = _create_without_faults(world)
    # Nothing may appear later either.
    api.advance(_LONGER_THAN_UNCLEAR.total_seconds())
    left = api.droplets()
    owned = [droplet for droplet in left if f"kedge-run:{RUN}" in droplet.tags]
    provider = world.provider()
    seen = [machine.id for machine in provider.machines()]
    assert seen == [M1], seen
    provider.destroy(M1)
    assert provider.describe(M1) is None
    provider.release(RUN)
    after = [f"droplet {droplet.id}" for droplet in api.droplets()]
    return Outcome(droplets=len(left), owned=len(owned), attempts=attempts, after=after)


def _create_without_faults(world: DoWorld) -> int:
    """Create the machine without faults, as later commands would, until one has it."""
    for attempt in range(1, _MOST_ATTEMPTS):
        try:
            world.provider().create(world.order())
        except StillBillingError:
            world.clock.sleep(_LONGER_THAN_UNCLEAR)
        else:
            return attempt
    raise AssertionError("no command got its machine")


def _attempt(world: DoWorld) -> None:
    """Try to create the machine; the command may fail."""
    try:
        world.provider().create(world.order())
    except KedgeError:
        return


def _with(order: Callable[[DigitalOceanBox], None]) -> Callable[[DoWorld, Doomed], None]:
    def act(world: DoWorld, doomed: Doomed) -> None:
        order(world.api)
        _attempt(world)

    return act


def _kill(*, after_effect: bool) -> Callable[[DoWorld, Doomed], None]:
    def act(world: DoWorld, doomed: Doomed) -> None:
        # The killed command has its own clock, so it cannot wait until the account knows the key.
        world.enter_key()
        # The answer is delayed until the command that waits for it is killed.
        if after_effect:
            world.api.faults.delay_next("POST", DROPLETS, 0.1, after_effect=True)
        else:
            world.api.faults.drop_next("POST", DROPLETS, after_effect=False)
        doomed.create_and_die(world)

    return act


def _race(others: Callable[[DoWorld], DoWorld], *, drop: bool = False) -> Callable[[DoWorld, Doomed], None]:
    def act(world: DoWorld, doomed: Doomed) -> None:
        if drop:
            world.api.faults.drop_next("POST", DROPLETS)
        racers = [threading.Thread(target=_attempt, args=[each]) for each in (world, others(world))]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()

    return act


def _fail(status: int, *, after_effect: bool) -> Callable[[DoWorld, Doomed], None]:
    return _with(lambda api: api.faults.fail_next("POST", DROPLETS, status=status, after_effect=after_effect))


_ACTIONS: dict[str, Callable[[DoWorld, Doomed], None]] = {
    "answered": _with(lambda _api: None),
    "dropped before": _with(lambda api: api.faults.drop_next("POST", DROPLETS, after_effect=False)),
    "dropped after": _with(lambda api: api.faults.drop_next("POST", DROPLETS)),
    "500 before": _fail(500, after_effect=False),
    "500 after": _fail(500, after_effect=True),
    "503 before": _fail(503, after_effect=False),
    "504 after": _fail(504, after_effect=True),
    "429": _with(lambda api: api.faults.refuse_rate(times=3)),
    "429 with Retry-After": _with(lambda api: api.faults.refuse_rate(times=2, retry_after=7)),
    "sold out": _with(lambda api: api.sell_out("gpu-mi300x1-192gb")),
    "killed before": _kill(after_effect=False),
    "killed after": _kill(after_effect=True),
    "race of two laptops": _race(DoWorld.other_laptop),
    "race of two commands": _race(lambda world: world),
    "race, one answer dropped": _race(DoWorld.other_laptop, drop=True),
}


def main(argv: Sequence[str]) -> int:
    """Run many sequences, and print a table of the outcomes; return 1 if one left anything but one droplet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    source = random.Random(args.seed)
    ran: Counter[str] = Counter()
    good: Counter[str] = Counter()
    bad: list[str] = []
    begun = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="kedge-sequences-"))
    # The tests, which run some of these sequences, check every call and answer against DigitalOcean's description.
    with start_box(root, checked=False) as api, doomed_commands() as doomed:
        for number in range(args.count):
            sequence = draw(source)
            folder = root / str(number)
            folder.mkdir()
            outcome = run_sequence(api, folder, doomed, sequence)
            is_good = (outcome.droplets, outcome.owned, outcome.after) == (1, 1, [])
            ran.update(set(sequence.steps))
            good.update(set(sequence.steps) if is_good else ())
            bad += [] if is_good else [f"{sequence}: {outcome}"]
            print(f"\r{number + 1}", end="", file=sys.stderr, flush=True)
    shutil.rmtree(root)
    print(f"{args.count} sequences of seed {args.seed}, {time.monotonic() - begun:.0f} s\n")
    print("| among what happened | sequences | one droplet, its run's, and none after teardown |\n|---|---:|---:|")
    for step in itertools.chain(STEPS):
        print(f"| {step} | {ran[step]} | {good[step]} |")
    print("\n".join(["", *bad]) if bad else "\nNone left anything else.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
