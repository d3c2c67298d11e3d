"""Guards an attached terminal: keys that would end the command need confirmation; the status line says how to leave.

kedge's sessions have their own socket and configuration, so the user's own sessions don't change.
"""

from __future__ import annotations

from collections.abc import Iterator

_STOPPING = ("C-c", "C-\\", "C-z")
"""The keys that interrupt, end or pause the foreground process."""
_QUESTION = "Send %s to the command? That stops the run. (y/n)"


def tmux_commands() -> list[str]:
    """Return commands for kedge's own tmux server, to be prepended to another one."""
    return [*_tmux_keys(), *_option("status-right", " Ctrl-b d leaves, the run goes on "), *_option(_LENGTH, "40")]


_LENGTH = "status-right-length"


def _tmux_keys() -> Iterator[str]:
    for key in _STOPPING:
        yield from (
            "bind-key",
            "-n",
            key,
            "confirm-before",
            "-p",
            _QUESTION % _key_name(key),
            f"send-keys '{key}'",
            ";",
        )


def _option(name: str, value: str) -> tuple[str, ...]:
    return ("set-option", "-g", name, value, ";")


# Screen has no yes/no prompt, so another key sends each. 003, 032 and 034 are the same three keys.
SCREENRC = r"""
startup_message off
hardstatus alwayslastline " kedge: Ctrl-a d leaves, the run goes on "
bindkey "\003" echo "Ctrl-C would stop the run: Ctrl-a C sends it, Ctrl-a d leaves"
bindkey "\032" echo "Ctrl-Z would pause the run: Ctrl-a Z sends it, Ctrl-a d leaves"
bindkey "\034" echo "Ctrl-\\ would kill the run, and isn't sent; Ctrl-a d leaves"
bind C stuff "\003"
bind Z stuff "\032"
"""


def _key_name(key: str) -> str:
    return key.upper().replace("C-", "Ctrl-")
