"""Offers once to make plain `ssh RUN` work, by a line in the user's own SSH configuration."""

from __future__ import annotations

import sys

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.ssh.ssh_config import install_include, is_included
from orchestrator.app.root import App
from orchestrator.cli.terminal.ask import can_ask, is_agreed
from orchestrator.core.errors import KedgeError

_DECLINED = "ssh-config-declined"


def offer_ssh_config(app: App) -> None:
    """Ask whether to write the line; a user who has declined isn't asked again, nor is anybody without a terminal.

    The launch continues in any case.
    """
    settings = app.settings
    declined, include = settings.state_dir / _DECLINED, settings.state_dir / "ssh_config"
    if not can_ask() or declined.exists():
        return
    try:
        if is_included(settings.ssh_config, include):
            return
        print("Plain `ssh RUN`, scp and editors can reach machines, too. That takes a line in")
        if is_agreed(f"{settings.ssh_config}. Write it?"):
            app.write_ssh_config()
            install_include(settings.ssh_config, include)
            print("Written: `ssh RUN` works as soon as the machine answers.")
        else:
            write_atomically(declined, b"`kedge ssh-config --install` writes the line after all\n")
            print("Not written, and not asked again; `kedge ssh-config --install` does it.")
    except (OSError, KedgeError) as err:
        print(f"The line can't be written: {err}", file=sys.stderr)
