"""Do the recipes learn, and what does a step of theirs cost beside a bare loop of the same model?

`python benchmarks/bench_recipes.py [--only imagenet] [--part learning|steps] [--write]`. The first table has the bars
of benchmarks/learning over three seeds, and the bytes that come home; the second the seconds of a step, on short data.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import benchmarks.learning
from benchmarks.learning.bar import LearningBar, Learnt, learn
from benchmarks.rounds import (
    CHECKOUT,
    RESULTS,
    Benchmark,
    Contender,
    aligned,
    clean_up_after_signals,
    scratch_folder,
    when_and_where,
)
from orchestrator.core.values.units import format_bytes

SEEDS, ROUNDS = 3, 5
BAR_OF_STEPS = 1.10
MOST_SECONDS = 180.0
HEADINGS = ("", "seed", "metric", "value", "bar", "untrained", "seconds", "written", "fetched", "")
WITHOUT_DATA = {"digits": (), "diffusion": ()}
"""Recipes whose data come with scikit-learn, with settings for their steps."""


def find_bars() -> dict[str, tuple[LearningBar, LearningBar]]:
    """Find the full and the short bar of each module of benchmarks/learning that has them."""
    found = {}
    for item in pkgutil.iter_modules(benchmarks.learning.__path__):
        module = importlib.import_module(f"benchmarks.learning.{item.name}")
        if hasattr(module, "BAR"):
            found[item.name] = (module.BAR, module.SHORT)
    return found


def measure_learning(bars: dict[str, LearningBar], seeds: int) -> tuple[str, bool]:
    """Train each recipe from several seeds; return the table, and whether all bars are met."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    is_met = True
    for name, bar in bars.items():
        for seed in range(seeds):
            with scratch_folder() as folder:
                learnt = learn(bar, folder, seed=seed, threads=2)
            met = is_bar_met(bar, learnt)
            is_met &= met
            rows.append(_row(name, seed, bar, learnt, met=met))
            print("  ".join(rows[-1]), flush=True)
    title = "Learning on generated data: the best value of a run, against what can be reached without learning"
    notes = (
        f"bars hold within {MOST_SECONDS:.0f} s on two cores, with curves, samples and the ONNX file; fetched: what "
        f"`kedge fetch` brings by default of what the run has written; {when_and_where()}"
    )
    return "\n".join([title, "", *aligned(rows), "", notes, ""]), is_met


def is_bar_met(bar: LearningBar, learnt: Learnt) -> bool:
    """Tell whether a training has reached its bar in time, and the untrained predictor hasn't."""
    is_learnt = bar.is_reached(learnt.value) and not bar.is_reached(learnt.untrained)
    return is_learnt and learnt.seconds <= MOST_SECONDS


def _row(name: str, seed: int, bar: LearningBar, learnt: Learnt, *, met: bool) -> tuple[str, ...]:
    sign = ">=" if bar.better == "max" else "<="
    shown = (f"{learnt.value:.4g}", f"{sign} {bar.reach:.4g}", f"{learnt.untrained:.4g}", f"{learnt.seconds:.0f}")
    amounts = (format_bytes(learnt.written), format_bytes(learnt.fetched))
    return (name, str(seed), bar.metric, *shown, *amounts, "met" if met else "MISSED")


def measure_steps(bars: dict[str, LearningBar], names: list[str], rounds: int) -> Benchmark:
    """Time a step of each recipe, in turns with the bare loop, each time in a process of its own."""
    benchmark = Benchmark(name="recipes", title="A step of each recipe, beside a bare loop of its model", rounds=rounds)
    for name in names:
        with scratch_folder() as folder:
            settings = list(_prepare(name, bars.get(name), folder))
            bare = f"{name}, a bare loop"
            benchmark.measure(
                [
                    Contender(name=bare, run=lambda s=settings, n=name: _time_step("bare", n, s)),  # type: ignore[misc]
                    Contender(
                        name=f"{name}, the trainer",
                        run=lambda s=settings, n=name: _time_step("kedge", n, s),  # type: ignore[misc]
                        against=bare,
                        bar=BAR_OF_STEPS,
                    ),
                ]
            )
    return benchmark


def _prepare(name: str, bar: LearningBar | None, folder: Path) -> Iterator[str]:
    """Generate a recipe's short data, and yield its settings."""
    if bar is None:
        yield from WITHOUT_DATA[name]
        return
    data = folder / "data"
    argv = [sys.executable, "-m", "trainer", "generate", name, str(data), f"--count={bar.count}"]
    subprocess.run(argv, cwd=CHECKOUT, check=True)
    yield f"data.folder={data}"
    yield from bar.settings


def _time_step(kind: str, name: str, settings: list[str]) -> float:
    argv = [sys.executable, "-m", "benchmarks.trainer.recipe_loops", kind, name, *settings]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return float(done.stdout.split("seconds ")[-1])


def main() -> None:
    """Print both tables, and keep them with --write; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", help="a recipe (repeatable); default: all")
    parser.add_argument("--part", choices=["learning", "steps"], help="one of the tables")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--write", action="store_true", help="keep the tables as results/recipes.txt")
    options = parser.parse_args()
    clean_up_after_signals()
    bars = {name: both for name, both in find_bars().items() if not options.only or name in options.only}
    texts, is_met = [], True
    if options.part != "steps":
        text, is_met = measure_learning({name: bar for name, (bar, _) in bars.items()}, options.seeds)
        texts.append(text)
    if options.part != "learning":
        names = [name for name in (*WITHOUT_DATA, *bars) if not options.only or name in options.only]
        steps = measure_steps({name: short for name, (_, short) in bars.items()}, names, options.rounds)
        texts.append(steps.text())
        is_met &= not steps.missed
    print("\n".join(texts), flush=True)
    if options.write:
        (RESULTS / "recipes.txt").write_text("\n".join(texts))
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
