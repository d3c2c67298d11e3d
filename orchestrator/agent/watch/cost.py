"""`cost`: prints time and cost since the machine was created."""

from __future__ import annotations

import sys
import time
from decimal import ROUND_HALF_UP, Decimal

from ..base.layout import Layout
from ..base.parse import read_machine_config

_CENT = Decimal("0.01")
_TENTH = Decimal("0.1")


def execute(layout: Layout) -> int:
    """Print the session's length and cost."""
    machine = read_machine_config(layout)
    seconds = max(0.0, time.time() - machine.created)
    sys.stdout.write(render_cost(seconds, Decimal(machine.usd_per_hour)) + "\n")
    return 0


def render_cost(seconds: float, usd_per_hour: Decimal) -> str:
    """Render hours and dollars, halves rounded up: 2.5 h at $1.99 are $4.98."""
    hours = Decimal(round(seconds)) / 3600
    usd = (hours * usd_per_hour).quantize(_CENT, rounding=ROUND_HALF_UP)
    return f"Session: {hours.quantize(_TENTH, rounding=ROUND_HALF_UP)}h elapsed, ~${usd} spent"
