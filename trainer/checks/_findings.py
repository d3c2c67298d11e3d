"""What a check has found: counts of what is there, and problems by kind."""

from __future__ import annotations

import json
from pathlib import Path

from trainer.base.errors import visible

_SHOWN = 10
"""How many problems of a kind are shown, before their number."""


class Findings:
    """Collects what a check finds; each problem has a kind, a path in the folder, and what is wrong with it.

    A check also sets `training_samples`, the number of samples of one epoch, if it can tell. `max_samples`: the run
    will use only the first so many, before some are held out; 0: all. `only`: it will read only data of this kind;
    auto: of the only kind that is there.
    """

    def __init__(self, folder: Path, *, max_samples: int = 0, only: str = "auto") -> None:
        self.folder = folder
        self.max_samples = max_samples
        self.only = only
        self.counts: dict[str, int] = {}
        self.problems: dict[str, list[tuple[str, str]]] = {}
        self.training_samples: int | None = None

    def require_steps(self, batch_size: int) -> None:
        """Add a problem if an epoch would have no step: an incomplete last batch is dropped."""
        if self.training_samples is not None and batch_size > self.training_samples:
            why = f"a batch of {batch_size:,} leaves no step: {self.training_samples:,} samples are for training"
            self.add("too few", self.folder, why)

    def count(self, what: str, number: int = 1) -> None:
        """Add to the number of something that is there, such as `pictures`; 0 lists it as well."""
        self.counts[what] = self.counts.get(what, 0) + number

    def add(self, kind: str, path: Path | str, what: str) -> None:
        """Add a problem.

        Args:
            kind: `missing`, `truncated`, `mis-shaped`, `misnamed`, `unlabelled`, `unreadable` or `too few`.
            path: the file, absolute or relative to the folder.
            what: the details, as in `1,000 of 2,102,784 bytes`.
        """
        inside = Path(path).relative_to(self.folder) if Path(path).is_absolute() else Path(path)
        self.problems.setdefault(kind, []).append((str(inside), what))

    def __bool__(self) -> bool:
        """Tell whether there are problems."""
        return bool(self.problems)

    def render(self) -> str:
        """Render lines for people: counts, and the first problems of each kind."""
        lines = [f"{number:>9,} {what}" for what, number in self.counts.items()]
        for kind, problems in self.problems.items():
            lines.append(f"{kind}: {len(problems):,}")
            lines += [f"  {path}: {what}" for path, what in problems[:_SHOWN]]
            if len(problems) > _SHOWN:
                lines.append(f"  ... and {len(problems) - _SHOWN:,} more")
        lines.append("This data set can't be trained on as it is." if self else "Nothing is wrong with it.")
        return visible("\n".join(lines)) + "\n"

    def render_json(self) -> str:
        """Render an object for scripts: all counts, and all problems as objects with kind, path and what."""
        problems = [
            {"kind": kind, "path": path, "what": what} for kind, each in self.problems.items() for path, what in each
        ]
        return json.dumps({"folder": str(self.folder), "counts": self.counts, "problems": problems}, indent=2) + "\n"
