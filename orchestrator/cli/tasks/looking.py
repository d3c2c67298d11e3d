"""Commands that look, and those that set up this computer: status, cost, doctor, ssh-config, completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from orchestrator.cli.commands import command

if TYPE_CHECKING:
    from orchestrator.adapters.jobfile.overrides import Overrides


@command("status")
def status(
    _context: Context,
    *,
    run: str | None,
    task: list[str],
    all: bool,  # noqa: A002 - the flag's name
    ledger: bool,
    json: bool,
) -> None:
    """Show the state of runs, with progress, machine and cost.

    It asks the ledger, the providers and the machines, and reports where they differ.

    Examples:
      kedge status
      kedge status --all
      kedge status digits-1121-k3f9 --json
      kedge status --task voxel
    """
    from orchestrator.app.looking import read_statuses
    from orchestrator.app.root import App
    from orchestrator.cli.drawing import render

    app = App()
    if task:
        from orchestrator.app.present import present_record
        from orchestrator.core.task import choose_tasks

        record = app.choose_run(run, live_only=False)
        record = record if ledger else present_record(app, record)
        choose_tasks(record.run_id, record.spec.job.tasks, task)
        run = record.run_id
    found = read_statuses(app, run=run, everything=all, ledger_only=ledger)
    render.statuses(found.runs, found.strays, as_json=json, detailed=bool(run), tasks=task)
    for error in found.errors:
        # All of what the others know is printed by now. The rest has a finding in each run that it is about.
        raise error


@command("cost")
def cost(_context: Context, *, run: str | None, json: bool) -> None:
    """Add up what machines have cost.

    A machine costs from its creation until it is confirmed to be gone.

    Examples:
      kedge cost
      kedge cost digits-1121-k3f9 --json
    """
    from orchestrator.app.looking import read_costs
    from orchestrator.app.root import App
    from orchestrator.cli.drawing.costs import costs

    costs(read_costs(App(), run), as_json=json)


@command("doctor")
def doctor(_context: Context, *, overrides: Overrides, json: bool) -> None:
    """Check that this computer and the cloud accounts can launch.

    It changes nothing, and says how to fix what is missing. It exits with 1 if a launch would fail.

    Examples:
      kedge doctor
      kedge doctor --provider aws --gpu t4 --region eu-west-1
      kedge doctor --provider amd --gpu mi300x
    """
    from orchestrator.adapters.host.installation import look_at_installation
    from orchestrator.cli.drawing.checkup import print_checkup
    from orchestrator.core.checkup import Verdict

    installation = () if overrides.has("resources.provider") else look_at_installation()
    if any(check.verdict is Verdict.FAILED for check in installation):
        # The rest may fail to load.
        print_checkup(installation, as_json=json)

    from orchestrator.app.checking import check_up
    from orchestrator.app.root import App

    print_checkup((*installation, *check_up(App(), overrides)), as_json=json)


@command("ssh-config")
def ssh_config(_context: Context, *, install: bool) -> None:
    """Make plain `ssh RUN`, scp and editors reach every live machine.

    It writes an SSH configuration file. Your own must include that file: --install adds the line.

    Examples:
      kedge ssh-config --install
    """
    from orchestrator.adapters.ssh.ssh_config import install_include
    from orchestrator.app.root import App
    from orchestrator.cli.drawing import render

    app = App()
    path = app.write_ssh_config()
    render.ssh_config(path, installed=install_include(app.settings.ssh_config, path) if install else None)


@command("completion")
def completion(_context: Context, *, shell: str | None) -> None:
    """Print a script that completes commands, runs, jobs and modes.

    It is for bash, zsh and fish. At every Tab the script asks kedge, which reads the ledger and this folder's job
    files, and contacts nobody. The script stays valid after an upgrade. Its first lines say how to load it in every
    shell.

    Examples:
      source <(kedge completion bash)
      mkdir -p ~/.zfunc && kedge completion zsh >~/.zfunc/_kedge
      kedge completion fish | source
    """
    from orchestrator.adapters.host.resources import resource
    from orchestrator.cli.terminal.shells import SHELLS
    from orchestrator.core.errors import BadRequestError

    if shell not in SHELLS:
        raise BadRequestError(
            f"there is no completion for {shell}" if shell else "say for which shell",
            why=f"kedge has {', '.join(SHELLS)}",
            fix="for example: kedge completion bash",
        )
    print(resource("templates", "completion", f"kedge.{shell}").read_text(encoding="utf-8"), end="")
