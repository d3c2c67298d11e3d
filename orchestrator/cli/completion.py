"""The task that sets a shell up: completion."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task


@task(help={"shell": "bash, zsh or fish"}, auto_shortflags=False)
def completion(_context: Context, shell: str | None = None) -> None:
    """Print what completes commands, runs, jobs and modes in a shell.

    It is for bash, zsh and fish. The script asks kedge at every Tab, which reads the ledger and the job files of the
    folder and contacts nobody; after an upgrade it goes on as it is. Remove the file, and it is gone.

    zsh finds the file in a folder of its `fpath`; the head of each script says how to get it there.

    Examples:
      kedge completion bash >~/.local/share/bash-completion/completions/kedge
      kedge completion zsh >~/.zfunc/_kedge
      kedge completion fish >~/.config/fish/completions/kedge.fish
    """
    from orchestrator.adapters.resources import resource
    from orchestrator.cli.completing import SHELLS
    from orchestrator.core.errors import BadRequestError

    if shell not in SHELLS:
        raise BadRequestError(
            f"there is no completion for {shell}" if shell else "say for which shell",
            why=f"kedge has {', '.join(SHELLS)}",
            fix="for example: kedge completion bash",
        )
    print(resource("templates", "completion", f"kedge.{shell}").read_text(encoding="utf-8"), end="")
