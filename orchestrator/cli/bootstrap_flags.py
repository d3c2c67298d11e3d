"""Rows of the table of flags (flag_table.py) that only `kedge bootstrap` has."""

from __future__ import annotations

from orchestrator.cli.flags import Flag

BOOTSTRAP_FLAGS = (
    Flag("bucket", "BUCKET", {"bootstrap": "the bucket's name; by default kedge-ACCOUNT-REGION"}),
    Flag(
        "read-bucket",
        "BUCKET",
        {
            "bootstrap": "another bucket that runs may read if their job names it; give all of them each time, or "
            "'' for none"
        },
        repeated=True,
    ),
    Flag(
        "run-role",
        "",
        {
            "bootstrap": "make one role for all runs, so that operators needn't create roles; runs can then read each "
            "other's results"
        },
    ),
    Flag(
        "budget-usd",
        "USD",
        {"bootstrap": "send mail when the account costs more than this many dollars a month; 0 for no alarm"},
    ),
    Flag("email", "EMAIL", {"bootstrap": "the address for that mail"}),
    Flag("remove", "", {"bootstrap": "remove what bootstrap has made; a bucket with data stays"}),
    Flag("delete-data", "", {"bootstrap": "with --remove: delete the bucket with everything in it"}),
)
