"""Makes the overrides that flags of `launch` result in."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.adapters.jobfile.overrides import Override, Overrides
from orchestrator.cli.flag_table import flags_of


def given(**flags: str | bool | Iterable[str]) -> Overrides:
    """Return the overrides that the command line makes of these flags of `launch`, by their names in Python."""
    rows = {flag.parameter: flag for flag in flags_of("launch") if flag.overrides}
    chosen = [(rows[name], value) for name, value in flags.items()]
    return Overrides(
        given=tuple(Override(flag=f"--{flag.name}", key=flag.overrides, value=value) for flag, value in chosen)
    )
