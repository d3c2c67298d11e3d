"""The flags that say what `fetch` brings, and where to: rows of the table in flag_table.py."""

from __future__ import annotations

from orchestrator.cli.flags import Completes, Flag

FETCH_FLAGS = (
    Flag("only", "NAMES", {"fetch": "only these results, such as best,curves or '*.png'"}),
    Flag("to", "FOLDER", {"fetch": "the folder to copy to; kedge-results/RUN by default"}, completes=Completes.FILES),
)
