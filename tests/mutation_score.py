"""Print how many wrong versions of the code its tests notice: `make mutants` and `make mutants-trainer` make them.

It fails below 85 %. `--write` keeps the table in tests/README.md.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
    """What was changed: its folder, and mutmut's working folder, both below the checkout."""

    name: str
    folder: Path
    mutants: Path


SUBJECTS = {
    "core": Subject("core", Path("orchestrator/core"), Path("mutants")),
    "trainer": Subject("trainer", Path("trainer"), Path("build/trainer-mutants/mutants")),
}


def read_exit_codes(folder: Path) -> Iterator[tuple[str, int | None]]:
    """Yield each change's module and the exit code of its tests; None where it hasn't been tried."""
    for meta in sorted(folder.rglob("*.meta")):
        module = str(meta.relative_to(folder)).removesuffix(".py.meta")
        for code in json.loads(meta.read_text())["exit_code_by_key"].values():
            yield module, code


def count(codes: Iterator[tuple[str, int | None]]) -> dict[str, Counter[str]]:
    """Count what became of each module's changes.

    Raises:
        ValueError: some haven't been tried: the run was cut short.
    """
    counts: dict[str, Counter[str]] = {}
    for module, code in codes:
        if code is None:
            raise ValueError(f"{module} has changes that haven't been tried: run it again")
        kind = "noticed" if code in _NOTICED else "unreached" if code in _UNREACHED else "survived"
        counts.setdefault(module, Counter())[kind] += 1
    return counts


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


def main(arguments: Sequence[str]) -> int:
    """Print the table, and keep it where that is asked for."""
    subject = SUBJECTS["trainer" if "trainer" in arguments else "core"]
    counts = count(read_exit_codes(ROOT / subject.mutants / subject.folder))
    text = f"{datetime.now(UTC):%Y-%m-%d}:\n\n{table(counts, subject.name)}"
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
