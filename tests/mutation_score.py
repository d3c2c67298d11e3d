"""Print how many wrong versions of the code its tests notice: `make mutants` and `make mutants-trainer` make them.

It fails below 85 %. `--write` keeps the table in tests/README.md. Where all versions would take hours, a random sample
is tried; `--all` counts all. `--names` prints only the names of those to try, after mutmut has made all of them.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "tests" / "README.md"
LEAST_PERCENT = 85
_HEAD = "| module | changes | noticed | not noticed | reached by no test | score |"

_NOTICED = {1, 3, 24, 36, -24, 152, 255}
"""Exit codes of mutmut 3: a test failed, or the change made it run for ever."""
_UNREACHED = {5, 33}


@dataclass(frozen=True)
class Subject:
    """What was changed: its folder, and mutmut's working folder, both below the checkout; `share` of it is tried."""

    name: str
    folder: Path
    mutants: Path
    share: float = 1.0


SUBJECTS = {
    "core": Subject("core", Path("orchestrator/core"), Path("mutants")),
    "trainer": Subject("trainer", Path("trainer"), Path("build/trainer-mutants/mutants"), share=0.25),
}


def read_exit_codes(folder: Path) -> Iterator[tuple[str, str, int | None]]:
    """Yield each change's module, its name and the exit code of its tests; None where it hasn't been tried."""
    for meta in sorted(folder.rglob("*.meta")):
        module = str(meta.relative_to(folder)).removesuffix(".py.meta")
        for name, code in json.loads(meta.read_text())["exit_code_by_key"].items():
            yield module, name, code


def is_drawn(name: str, share: float) -> bool:
    """Tell whether a change is in the sample: by a hash of its name, so that each run draws the same ones."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") < share * 2**64


def count(codes: Iterable[tuple[str, str, int | None]]) -> dict[str, Counter[str]]:
    """Count what became of each module's changes.

    Raises:
        ValueError: some haven't been tried: the run was cut short.
    """
    counts: dict[str, Counter[str]] = {}
    for module, name, code in codes:
        if code is None:
            raise ValueError(f"{name} hasn't been tried: run it again")
        kind = "noticed" if code in _NOTICED else "unreached" if code in _UNREACHED else "survived"
        counts.setdefault(module, Counter())[kind] += 1
    return counts


def interval(noticed: int, tried: int) -> tuple[float, float]:
    """Compute Wilson's 95 % interval of a share of a random sample, in percent."""
    z, share = 1.96, noticed / tried
    middle = share + z * z / (2 * tried)
    half = z * math.sqrt(share * (1 - share) / tried + (z / (2 * tried)) ** 2)
    return tuple(100 * (middle + sign * half) / (1 + z * z / tried) for sign in (-1, 1))  # type: ignore[return-value]


def percent(counted: Mapping[str, int]) -> float:
    """Return the share that was noticed, of all changes."""
    return 100 * counted["noticed"] / sum(counted.values())


def table(counts: Mapping[str, Counter[str]], name: str) -> str:
    """Write the table by module, with the sum at its end."""
    rows = {**counts, f"**{name}**": sum(counts.values(), Counter[str]())}
    lines = [
        f"| {name} | {sum(row.values()):,} | {row['noticed']:,} | {row['survived']} | {row['unreached']} | "
        f"{percent(row):.1f} % |"
        for name, row in rows.items()
    ]
    return "\n".join([_HEAD, "|---|---|---|---|---|---|", *lines]) + "\n"


def describe_sample(counts: Mapping[str, Counter[str]], all_changes: int) -> str:
    """Say how large the sample is, and how exact the score."""
    whole = sum(counts.values(), Counter[str]())
    low, high = interval(whole["noticed"], whole.total())
    return f", {whole.total():,} of {all_changes:,} changes; 95 % interval of the score: {low:.1f} to {high:.1f} %"


def main(arguments: Sequence[str]) -> int:
    """Print the table, and keep it where that is asked for."""
    subject = SUBJECTS["trainer" if "trainer" in arguments else "core"]
    share = 1.0 if "--all" in arguments else subject.share
    changes = list(read_exit_codes(ROOT / subject.mutants / subject.folder))
    drawn = [change for change in changes if is_drawn(change[1], share)]
    if "--names" in arguments:
        print("\n".join(name for _, name, _ in drawn))
        return 0
    counts = count(drawn)
    heading = f"{datetime.now(UTC):%Y-%m-%d}" + (describe_sample(counts, len(changes)) if share < 1 else "")
    text = f"{heading}:\n\n{table(counts, subject.name)}"
    print(text)
    if "--write" in arguments:
        begin, end = f"<!-- score: {subject.name} -->\n", f"<!-- end of {subject.name} -->\n"
        before, _, rest = PAGE.read_text().partition(begin)
        PAGE.write_text(f"{before}{begin}{text}{end}{rest.partition(end)[2]}")
    score = percent(sum(counts.values(), Counter[str]()))
    if score < LEAST_PERCENT:
        print(f"{score:.1f} % is less than {LEAST_PERCENT} %", file=sys.stderr)
    return int(score < LEAST_PERCENT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
