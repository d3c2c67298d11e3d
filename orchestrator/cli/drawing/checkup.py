"""Prints a checkup. It must work in a broken installation, so it loads nothing but the standard library."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from orchestrator.cli.terminal.table import Table
from orchestrator.core.checkup import Check, Verdict

_MARKS = {Verdict.OK: "ok", Verdict.WARNING: "?", Verdict.FAILED: "!!", Verdict.UNUSED: "-"}


def print_checkup(found: Sequence[Check], *, as_json: bool) -> None:
    """Print what was checked and how to fix what isn't right; exit with 1 if a launch would fail.

    Raises:
        SystemExit: a check has failed.
    """
    if as_json:
        print(json.dumps([asdict(check) for check in found], indent=2))
    else:
        _make_table(found).print()
    if any(check.verdict is Verdict.FAILED for check in found):
        raise SystemExit(1)


def complain_of_installation(err: ImportError) -> int:
    """Explain why kedge itself can't be loaded, and how to fix it; return the exit code."""
    from orchestrator.adapters.host.installation import look_at_installation

    print(f"error: kedge can't start: {err}", file=sys.stderr)
    _make_table([check for check in look_at_installation() if check.verdict is not Verdict.OK]).print(stderr=True)
    return 1


def _make_table(found: Sequence[Check]) -> Table:
    table = Table("", "what", "found", "how to fix it", names=("what",))
    for check in found:
        table.add_row(_MARKS[check.verdict], check.name, check.found, check.fix)
    return table
