"""The flags that let a job have what kedge refuses to job files: rows of the table in flag_table.py."""

from __future__ import annotations

from orchestrator.cli.flags import Flag

_LAUNCH = "launch plan"

ALLOWING_FLAGS = (
    Flag(
        "allow-secret",
        "NAME",
        {
            f"{_LAUNCH} export": "let the job have one of kedge's own credentials of this shell (AWS_..., AMD_...); "
            "repeatable"
        },
        repeated=True,
        overrides="allow_secret",
    ),
    Flag(
        "allow-proxy-command",
        "",
        {_LAUNCH: "let this computer run the proxy_command of the job file, to reach the machine"},
        overrides="allow_proxy_command",
    ),
    Flag(
        "allow-check",
        "",
        {_LAUNCH: "with --yes: let this computer run the job file's check, even if it isn't one of kedge's own"},
        overrides="allow_check",
    ),
)
