"""The command that sets up a shell: completion."""

from __future__ import annotations

from invoke.context import Context

from orchestrator.cli.commands import command


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
