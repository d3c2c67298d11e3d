"""The table of flags. Commands, help, completion and the command reference are generated from it (commands.py).

A new flag is one row here; if it overrides a key of the job, the command line needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.cli.allowing_flags import ALLOWING_FLAGS
from orchestrator.cli.bootstrap_flags import BOOTSTRAP_FLAGS
from orchestrator.cli.export_flags import EXPORT_FLAGS
from orchestrator.cli.fetch_flags import FETCH_FLAGS
from orchestrator.cli.flags import Completes, Flag
from orchestrator.cli.node_flags import NODE_FLAGS
from orchestrator.cli.terminal.shells import SHELLS

_LAUNCH = "launch plan"
_REREAD = "take `run` and `resume` from the job file as it is now"
_ONE_RUN = "the run; by default the only live run of this folder's job"
_JSON = "print one JSON document for scripts"

# Rows are in the order of every command's help. A command's first flag, if it takes a value, is also positional.
FLAGS = (
    Flag(
        "run", "RUN", {"start stop extend sync-code sync-data attach ssh exec": _ONE_RUN}, completes=Completes.LIVE_RUNS
    ),
    Flag("by", "TIME", {"extend": "how much later the deadline is to be; for example 90m or 2h"}, positional=True),
    Flag(
        "until",
        "WHEN",
        {"extend": "the new deadline by this computer's clock: 18:00 (tomorrow if it is over), or 2026-11-24T18:00"},
    ),
    Flag(
        "run",
        "RUN",
        {
            "resume logs teardown": _ONE_RUN,
            "fetch": "the run; by default this job's newest run that has results",
            "status": "one run; by default all live runs",
            "cost": "one run; by default all runs",
        },
        completes=Completes.RUNS,
    ),
    Flag(
        "task",
        "TASK",
        {
            "status logs fetch stop": "only this task, if the run has several; may be repeated",
            "start": "only this task, if the run has several, and even if it has succeeded; may be repeated",
        },
        repeated=True,
        completes=Completes.TASKS,
    ),
    *NODE_FLAGS,
    Flag(
        "job",
        "JOB",
        {f"{_LAUNCH} export": "a job file, or the name of one beside the nearest kedge.yaml or in infra/jobs"},
        completes=Completes.JOBS,
    ),
    Flag(
        "mode",
        "MODE",
        {
            f"{_LAUNCH} export": "a variant of the job, from its `modes`; with its arguments, if it has any: "
            "'custom 100 512'",
            "start resume": "run this mode of the job on the same machine, with its setup and data",
            "logs fetch": "only of this mode of the run, such as validate or 2-fast",
        },
        completes=Completes.MODES,
    ),
    Flag("modes", "MODES", {_LAUNCH: "several modes, such as validate,fast: one after the other, until one fails"}),
    Flag("all-modes", "", {"plan": "a table of the job's modes: time, cost, and all planned runs against the budget"}),
    Flag("offers", "", {"plan": "a table of the machines that fit: price, GPU memory, and each mode's time and cost"}),
    Flag(
        "provider",
        "PROVIDER",
        {
            _LAUNCH: "where to run: local, aws, do (DigitalOcean), amd (AMD Developer Cloud) or lambda (Lambda Cloud)",
            "offers": "whose offers: local, aws, do, amd or lambda",
            "doctor": "check this account: aws, do, amd or lambda; by default this computer, and its credentials for "
            "each account",
            "selftest": "where: local, aws, do, amd or lambda",
        },
        overrides="resources.provider",
        completes=Completes.PROVIDERS,
    ),
    Flag(
        "provider",
        "PROVIDER",
        {
            "bootstrap": "whose account: aws",
            "reap volumes": "only these providers, separated by commas; each must answer",
        },
        completes=Completes.PROVIDERS,
    ),
    Flag(
        "gpu",
        "GPU",
        {
            f"{_LAUNCH} export": "the GPU and how many, for example mi300x or a10g:4",
            "offers": "only those with this GPU, for example mi300x or a10g:4",
            "doctor": "check offers and quotas for this GPU, for example t4 or a10g:4",
            "selftest": "test a machine with this GPU, for example t4; by default the provider's cheapest machine",
        },
        overrides="resources.accelerators",
    ),
    Flag(
        "instance-type",
        "TYPE",
        {_LAUNCH: "the provider's own name for a type of machine", "offers": "only this type of machine"},
        overrides="resources.instance_type",
    ),
    Flag(
        "region",
        "REGION",
        {
            _LAUNCH: "the region, or several separated by commas, in the order to try them",
            "offers": "only this region, or several separated by commas",
            "doctor selftest": "the region, or several separated by commas",
        },
        overrides="resources.region",
    ),
    Flag("region", "REGION", {"bootstrap": "the bucket's region; by default that of your AWS configuration"}),
    Flag(
        "num-nodes",
        "N",
        {_LAUNCH: "how many machines, each with these resources: rented together, or not at all"},
        overrides="num_nodes",
    ),
    Flag("zone", "ZONE", {_LAUNCH: "the zone", "offers": "only this zone"}, overrides="resources.zone"),
    Flag("image-id", "ID", {_LAUNCH: "the image's id"}, overrides="resources.image_id"),
    Flag(
        "spot",
        "",
        {
            _LAUNCH: "rent at the spot price; the machine may be reclaimed",
            "offers": "spot prices",
            "doctor selftest": "at the spot price",
        },
        overrides="resources.use_spot",
    ),
    Flag("disk-size", "SIZE", {_LAUNCH: "size of the root disk in GiB"}, overrides="resources.disk_size"),
    Flag(
        "ssh-from",
        "RANGE",
        {_LAUNCH: "addresses that may reach the machine over SSH, such as 198.51.100.7/32; by default only yours"},
    ),
    Flag(
        "ttl",
        "TIME",
        {_LAUNCH: "the deadline: the machine is ended after this time, finished or not; for example 90m or 4h"},
        overrides="deadline",
    ),
    Flag("ttl", "TIME", {"resume": "the new machine's deadline"}),
    Flag("budget", "USD", {_LAUNCH: "refuse if the worst case costs more than this many dollars"}, overrides="budget"),
    Flag(
        "budget",
        "USD",
        {"selftest": "refuse if the worst case costs more than this many dollars"},
        default="1",
        overrides="budget",
    ),
    Flag("budget", "USD", {"resume extend": "a new limit for the whole run, including what it has cost so far"}),
    Flag(
        "max-price",
        "USD",
        {
            _LAUNCH: "leave out offers above this many dollars an hour; a spot machine is given up above it",
            "offers": "leave out offers above this many dollars an hour",
        },
        overrides="resources.max_hourly_cost",
    ),
    Flag(
        "price",
        "USD",
        {f"{_LAUNCH} offers": "pretend this price per hour; only with provider local"},
        overrides="resources.usd_per_hour",
    ),
    Flag(
        "supervisor",
        "SUPERVISOR",
        {_LAUNCH: "what keeps the command alive: tmux, screen, nohup, systemd or systemd-user"},
        overrides="supervisor",
        choices=("tmux", "screen", "nohup", "systemd", "systemd-user"),
    ),
    Flag(
        "env",
        "NAME=VALUE",
        {
            f"{_LAUNCH} export": "set a variable of the command, NAME=VALUE; may be repeated",
            "start resume": "set a variable from now on, NAME=VALUE; may be repeated",
        },
        repeated=True,
        overrides="envs",
    ),
    *ALLOWING_FLAGS,
    Flag(
        "without-reaper",
        "",
        {
            f"{_LAUNCH} resume": "launch although nothing would end the bill of a forgotten machine: no "
            "`kedge reap` runs on a timer, and the provider needs one"
        },
    ),
    Flag("detach", "", {f"{_LAUNCH} resume": "return when the command has started, and leave it running"}),
    Flag("keep", "", {f"{_LAUNCH} resume": "keep the machine after the command has ended, until its deadline"}),
    Flag("recover", "", {f"{_LAUNCH} resume": "replace a machine that is lost, as long as this command runs"}),
    Flag(
        "no-recover",
        "",
        {
            _LAUNCH: "don't replace lost machines, even if the job says `recover: true`",
            "resume": "stop replacing lost machines of this run",
        },
    ),
    Flag(
        "ssh-from",
        "RANGE",
        {"resume": "addresses that may reach the machine from now on, such as 198.51.100.0/24"},
    ),
    Flag("refresh", "", {"offers": "refresh the snapshot of prices, which planning without a network uses"}),
    Flag("command", "COMMAND", {"resume start": "run this command from now on, whether there is a checkpoint or not"}),
    Flag("continue", "", {"start resume": "begin the mode from the newest checkpoint of the one before"}),
    Flag("now", "", {"stop": "kill it at once, without a checkpoint"}),
    Flag("restart", "", {"sync-code": "restart the command on the new code, from its newest checkpoint"}),
    Flag("reread", "", {"resume start": _REREAD, "sync-code": f"with --restart: {_REREAD}"}),
    Flag("delete", "VOLUME", {"volumes": "delete this volume, by its name or its id, with everything that is on it"}),
    Flag("delete", "", {"sync-data": "also delete files on the machine that the folder here doesn't have"}),
    *FETCH_FLAGS,
    Flag("follow", "", {"logs": "print new lines as they are written; Ctrl-C leaves"}, short="f"),
    Flag("lines", "N", {"logs": "how many of the newest lines to print first"}, short="n", default=100),
    Flag("raw", "", {"logs": "print the command's raw bytes, for a pipe or a file"}),
    Flag("admin", "", {"ssh exec": "as the user with sudo, instead of the job's user"}),
    Flag("no-fetch", "", {"teardown": "don't fetch the results; they are lost with the machine"}),
    Flag(
        "all",
        "",
        {
            "status": "also runs that have ended",
            "reap": "also end machines of other computers' runs that are past their deadline",
        },
    ),
    Flag("ledger", "", {"status": "read the local ledger only, and contact nothing"}),
    Flag(
        "install",
        "",
        {
            "ssh-config": "put the Include line into your own SSH configuration",
            "recover": "run this command every minute, with a systemd user timer",
            "reap": "run this command with --yes every 15 minutes, with a systemd user timer",
        },
    ),
    Flag("uninstall", "", {"recover reap": "remove that timer"}),
    *BOOTSTRAP_FLAGS,
    *EXPORT_FLAGS,
    Flag("shell", "SHELL", {"completion": "bash, zsh or fish"}, choices=SHELLS),
    Flag("output", "FILE", {"job-schema": "write to this file instead of the terminal"}, completes=Completes.FILES),
    Flag(
        "dry-run",
        "",
        {
            "launch resume start stop extend sync-data fetch teardown": "print the plan and do nothing",
            "bootstrap": "print what would change and do nothing",
            "reap": "print what would be ended and do nothing",
            "volumes": "print what --delete would delete and do nothing",
        },
        short="n",
    ),
    Flag(
        "yes", "", {"launch resume start stop extend teardown bootstrap selftest reap volumes": "don't ask"}, short="y"
    ),
    Flag(
        "json",
        "",
        {
            _LAUNCH: "print one JSON document for scripts; what happens meanwhile goes to standard error",
            "resume start stop extend sync-code sync-data fetch teardown": _JSON,
            "status cost doctor recover": _JSON,
            "bootstrap": "print one JSON document for scripts; the changes go to standard error",
            "reap volumes": "print one JSON document for scripts; the table goes to standard error",
            "selftest": "print the report on standard output as well",
            "offers jobs": "print JSON for scripts",
        },
    ),
)


def flags_of(command: str) -> Iterator[Flag]:
    """List a command's flags, in the order of its help."""
    return (flag for flag in FLAGS if flag.text(command))
