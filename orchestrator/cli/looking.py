"""Tasks that look: status, cost, doctor, ssh-config."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

_JSON = "print one JSON document for scripts"


@task(
    help={
        "run": "one run; all live ones when left out",
        "all": "runs that ended as well",
        "ledger": "read the local ledger only, and contact nothing",
        "json": _JSON,
    },
    auto_shortflags=False,
)
def status(
    _context: Context,
    run: str | None = None,
    all: bool = False,  # noqa: A002 - the flag's name
    ledger: bool = False,
    json: bool = False,
) -> None:
    """Tell how runs are: their state, progress, machine and cost.

    Asks the ledger, the provider and the machines, and says where these differ.

    Examples:
      kedge status
      kedge status --all
      kedge status digits-1121-k3f9 --json
    """
    from orchestrator.app.looking import find_strays, read_statuses
    from orchestrator.app.root import App
    from orchestrator.cli import render

    app = App()
    found = read_statuses(app, run=run, everything=all, ledger_only=ledger)
    strays = () if ledger or run else find_strays(app)
    render.statuses(found, strays, as_json=json, detailed=bool(run))


@task(help={"run": "one run; all of them when left out", "json": _JSON}, auto_shortflags=False)
def cost(_context: Context, run: str | None = None, json: bool = False) -> None:
    """Add up what machines have cost.

    They cost from the moment they were created to the moment they were gone.

    Examples:
      kedge cost
      kedge cost digits-1121-k3f9 --json
    """
    from orchestrator.app.looking import read_costs
    from orchestrator.app.root import App
    from orchestrator.cli import render

    render.costs(read_costs(App(), run), as_json=json)


@task(
    help={
        "provider": "an account: aws, do or amd; this computer, and whether each account lets it in, when left out",
        "gpu": "the GPU that is to be launched, for offers and quotas, for example t4 or a10g:4",
        "region": "the region, or several with commas between them",
        "spot": "at the spot price",
        "json": _JSON,
    },
    auto_shortflags=False,
)
def doctor(
    _context: Context,
    provider: str | None = None,
    gpu: str | None = None,
    region: str | None = None,
    spot: bool = False,
    json: bool = False,
) -> None:
    """Check that this computer and the cloud accounts can launch.

    Says how to fix what is missing.

    Nothing is made or changed. Exits 1 where a launch would fail.

    Examples:
      kedge doctor
      kedge doctor --provider aws --gpu t4 --region eu-west-1
      kedge doctor --provider amd --gpu mi300x
    """
    from orchestrator.adapters.installation import look_at_installation
    from orchestrator.cli.checkup import print_checkup
    from orchestrator.core.checkup import Verdict

    installation = look_at_installation() if provider is None else ()
    if any(check.verdict is Verdict.FAILED for check in installation):
        # The rest may not even load.
        print_checkup(installation, as_json=json)

    from orchestrator.adapters.jobfile.flags import Overrides
    from orchestrator.app.checking import check_up
    from orchestrator.app.root import App

    overrides = Overrides(provider=provider, gpu=gpu, region=region, use_spot=True if spot else None)
    print_checkup((*installation, *check_up(App(), overrides)), as_json=json)


@task(help={"install": "put the Include line into your own SSH configuration"}, auto_shortflags=False)
def ssh_config(_context: Context, install: bool = False) -> None:
    """Make plain `ssh RUN`, scp and editors reach every live machine.

    Writes the SSH configuration for it, which your own includes with one line: --install writes that.

    Examples:
      kedge ssh-config --install
    """
    from orchestrator.adapters.remote.sshconfig import install_include
    from orchestrator.app.root import App
    from orchestrator.cli import render

    app = App()
    path = app.write_ssh_config()
    render.ssh_config(path, installed=install_include(app.settings.ssh_config, path) if install else None)
