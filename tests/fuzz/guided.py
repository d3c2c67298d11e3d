"""One target under atheris, whose mutations are guided by coverage of kedge's own code: `python -m tests.fuzz.guided`.

It runs in a process of its own, because libFuzzer ends its process. A finding doesn't end the run: each is kept once.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

STRUCTURED = 0.5
"""The share of mutations that change the parsed input; the others are libFuzzer's, of bytes."""

_MODULES = ("orchestrator", "trainer", "tarfile", "zipfile")


def main() -> None:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("seconds", type=int)
    parser.add_argument("findings", type=Path)
    parser.add_argument("--structured", type=float, default=STRUCTURED)
    args = parser.parse_args()
    with atheris.instrument_imports(include=list(_MODULES)):
        from tests.fuzz.running import Findings, bounded_memory, working_folder
        from tests.fuzz.target import CORPUS
        from tests.fuzz.targets import load

        target = load(args.target)
    from tests.fuzz.mutating import mutate

    seeds = target.seeds()
    findings = Findings(target, args.findings)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() >= args.structured:
            return bytes(atheris.Mutate(data, most))
        return mutate(data, random, form=target.form, tokens=target.tokens, others=seeds)[:most]

    with working_folder() as folder, tempfile.TemporaryDirectory() as grown, bounded_memory():
        shutil.copytree(CORPUS / target.name, grown, dirs_exist_ok=True)
        options = [
            f"-max_total_time={args.seconds}",
            "-timeout=300",
            "-handle_xfsz=0",
            "-report_slow_units=300",
            "-rss_limit_mb=0",
            "-max_len=65536",
            "-seed=1",
            f"-artifact_prefix={args.findings}/",
        ]
        atheris.Setup([sys.argv[0], *options, grown], lambda data: findings.look(data, folder), custom_mutator=mutated)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
