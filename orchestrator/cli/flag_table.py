"""The table of flags. Commands, help, completion and the command reference are generated from it (commands.py).

A new flag is one row here; if it overrides a key of the job, the command line needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.cli.flags import Completes, Flag
from orchestrator.cli.terminal.shells import SHELLS

_LAUNCH = "launch plan"
_REREAD = "take `run` and `resume` from the job file as it is now"
_ONE_RUN = "the run; the only live one of this folder's job when left out"
_JSON = "print one JSON document for scripts"

# Rows are in the order of every command's help. A command's first flag, if it takes a value, is also positional.
FLAGS = (
    Flag("run", "RUN", {"start stop sync-code sync-data attach ssh exec": _ONE_RUN}, completes=Completes.LIVE_RUNS),
    Flag(
        "run",
        "RUN",
        {
            "resume logs teardown": _ONE_RUN,
            "fetch": "the run; the newest one here that has results when left out",
            "status": "one run; all live ones when left out",
            "cost": "one run; all of them when left out",
        },
        completes=Completes.RUNS,
    ),
    Flag(
        "job",
        "JOB",
        {_LAUNCH: "a job file, or the name of one beside the nearest kedge.yaml or in infra/jobs"},
        completes=Completes.JOBS,
    ),
    Flag("mode", "MODE", {_LAUNCH: "a variant of the job, from its `modes`"}, completes=Completes.MODES),
    Flag(
        "provider",
        "PROVIDER",
        {
            _LAUNCH: "where to run: local, aws, do (DigitalOcean), amd (AMD Developer Cloud) or lambda (Lambda Cloud)",
            "offers": "whose offers: local, aws, do, amd or lambda",
            "doctor": "an account: aws, do, amd or lambda; this computer, and whether each account lets it in, when "
            "left out",
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
            "reap": "only these providers, separated by commas; each must answer",
        },
        completes=Completes.PROVIDERS,
    ),
    Flag(
        "gpu",
        "GPU",
        {
            _LAUNCH: "the GPU and how many, for example mi300x or a10g:4",
            "offers": "only those with this GPU, for example mi300x or a10g:4",
            "doctor": "the GPU that is to be launched, for offers and quotas, for example t4 or a10g:4",
            "selftest": "try a machine with this GPU, for example t4; the cheapest machine of the provider when left "
            "out",
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
            _LAUNCH: "the region, or several with commas between them, in the order in which to try them",
            "offers": "only this region, or these, with commas between them",
            "doctor selftest": "the region, or several with commas between them",
        },
        overrides="resources.region",
    ),
    Flag("region", "REGION", {"bootstrap": "the bucket's region; your AWS configuration's region when left out"}),
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
        {_LAUNCH: "who may reach the machine over SSH, as 198.51.100.7/32; this computer's own address when left out"},
    ),
    Flag(
        "ttl",
        "TIME",
        {_LAUNCH: "the deadline: the machine is ended after this time, finished or not; for example 90m or 4h"},
        overrides="deadline",
    ),
    Flag("ttl", "TIME", {"resume": "the new machine's deadline"}),
    Flag(
        "budget", "USD", {_LAUNCH: "refuse when the worst case costs more than this many dollars"}, overrides="budget"
    ),
    Flag(
        "budget",
        "USD",
        {"selftest": "refuse when the worst case costs more than this many dollars"},
        default="1",
        overrides="budget",
    ),
    Flag("budget", "USD", {"resume": "a new limit for the whole run, including what it has cost so far"}),
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
        {f"{_LAUNCH} offers": "rehearse with this price per hour (the local provider)"},
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
        {_LAUNCH: "set a variable of the command, NAME=VALUE; may be repeated"},
        repeated=True,
        overrides="envs",
    ),
    Flag(
        "allow-secret",
        "NAME",
        {_LAUNCH: "let the job take a variable of this shell that is kedge's own (AWS_..., AMD_...); may be repeated"},
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
        "without-reaper",
        "",
        {
            f"{_LAUNCH} resume": "rent it where nothing but `kedge reap` ends a forgotten machine's bill, though none "
            "runs on a timer"
        },
    ),
    Flag("detach", "", {f"{_LAUNCH} resume": "return when the command has started, and leave it running"}),
    Flag("keep", "", {f"{_LAUNCH} resume": "keep the machine until its deadline after the command has ended"}),
    Flag("recover", "", {f"{_LAUNCH} resume": "replace a machine that is lost, as long as this command runs"}),
    Flag(
        "no-recover",
        "",
        {
            _LAUNCH: "replace no machine, although the job says `recover: true`",
            "resume": "replace no machine of this run any more",
        },
    ),
    Flag(
        "ssh-from",
        "RANGE",
        {"resume": "who may reach the machine from now on, as 198.51.100.0/24; as before when left out"},
    ),
    Flag("refresh", "", {"offers": "refresh the snapshot of prices, which planning without a network uses"}),
    Flag("command", "COMMAND", {"resume start": "run this command from now on, whether there is a checkpoint or not"}),
    Flag("now", "", {"stop": "kill it at once, without a checkpoint"}),
    Flag("restart", "", {"sync-code": "restart the command on the new code, from its newest checkpoint"}),
    Flag("reread", "", {"resume start": _REREAD, "sync-code": f"with --restart: {_REREAD}"}),
    Flag("delete", "", {"sync-data": "delete on the machine what the folder here doesn't have"}),
    Flag("to", "FOLDER", {"fetch": "the folder to copy to; kedge-results/RUN by default"}, completes=Completes.FILES),
    Flag("follow", "", {"logs": "print new lines as they are written; Ctrl-C leaves"}, short="f"),
    Flag("lines", "N", {"logs": "how many lines to begin with"}, short="n", default=100),
    Flag("raw", "", {"logs": "print the command's raw bytes, for a pipe or a file"}),
    Flag("admin", "", {"ssh exec": "as the user who has sudo on the machine, not as the job's"}),
    Flag("no-fetch", "", {"teardown": "don't fetch the results; they are lost with the machine"}),
    Flag(
        "all",
        "",
        {
            "status": "runs that ended as well",
            "reap": "end machines of other computers' runs, too, once they are past their deadline",
        },
    ),
    Flag("ledger", "", {"status": "read the local ledger only, and contact nothing"}),
    Flag(
        "install",
        "",
        {
            "ssh-config": "put the Include line into your own SSH configuration",
            "recover": "run this command every minute, by a systemd timer of your user",
            "reap": "run this command with --yes every 15 minutes, by a systemd timer of your user",
        },
    ),
    Flag("uninstall", "", {"recover reap": "remove that timer"}),
    Flag("bucket", "BUCKET", {"bootstrap": "the bucket's name; kedge-ACCOUNT-REGION when left out"}),
    Flag(
        "read-bucket",
        "BUCKET",
        {
            "bootstrap": "another bucket that runs may read where their job names it; repeat it for all of them, '' "
            "for none"
        },
        repeated=True,
    ),
    Flag(
        "run-role",
        "",
        {
            "bootstrap": "make one role for all runs, for people who may not make roles; runs can read each other's "
            "results"
        },
    ),
    Flag(
        "budget-usd",
        "USD",
        {"bootstrap": "send mail when the account costs more than this many dollars a month; 0 for no alarm"},
    ),
    Flag("email", "EMAIL", {"bootstrap": "the address for that mail"}),
    Flag("remove", "", {"bootstrap": "remove the account level; a bucket that holds data stays"}),
    Flag("delete-data", "", {"bootstrap": "with --remove: delete the bucket with everything in it"}),
    Flag("shell", "SHELL", {"completion": "bash, zsh or fish"}, choices=SHELLS),
    Flag("output", "FILE", {"job-schema": "write to this file instead of the terminal"}, completes=Completes.FILES),
    Flag(
        "dry-run",
        "",
        {
            "launch resume start stop sync-data fetch teardown": "print the plan and do nothing",
            "bootstrap": "print what would change and do nothing",
            "reap": "print what would be ended and do nothing",
        },
        short="n",
    ),
    Flag("yes", "", {"launch resume stop teardown bootstrap selftest reap": "don't ask"}, short="y"),
    Flag(
        "json",
        "",
        {
            _LAUNCH: "print one JSON document for scripts; what happens meanwhile goes to standard error",
            "resume start stop sync-code sync-data fetch teardown": _JSON,
            "status cost doctor recover": _JSON,
            "bootstrap": "print one JSON document for scripts; the changes go to standard error",
            "reap": "print one JSON document for scripts; the table goes to standard error",
            "selftest": "print the report on standard output as well",
            "offers jobs": "print JSON for scripts",
        },
    ),
)


def flags_of(command: str) -> Iterator[Flag]:
    """List a command's flags, in the order of its help."""
    return (flag for flag in FLAGS if flag.text(command))
