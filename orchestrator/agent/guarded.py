"""What a terminal that shows the command does with keys that would end it: it asks first, and says how to leave.

kedge's sessions have a socket and a configuration of their own: nothing of this reaches the user's.
"""

from __future__ import annotations

from collections.abc import Iterator

_STOPPING = ("C-c", "C-\\", "C-z")
"""Keys by which a terminal interrupts, ends or pauses what runs in it."""
_QUESTION = "Send %s to the command? That stops the run. (y/n)"


def tmux_commands() -> list[str]:
    """Return commands for a tmux server of kedge's own, to be given before another one."""
    return [*_tmux_keys(), *_option("status-right", " Ctrl-b d leaves, the run goes on "), *_option(_LENGTH, "40")]


_LENGTH = "status-right-length"


def _tmux_keys() -> Iterator[str]:
    for key in _STOPPING:
        yield from ("bind-key", "-n", key, "confirm-before", "-p", _QUESTION % _spoken(key), f"send-keys '{key}'", ";")


def _option(name: str, value: str) -> tuple[str, ...]:
    return ("set-option", "-g", name, value, ";")


# Screen knows no question with a yes or no: another key does it. 003, 032 and 034 are the same three keys.
SCREENRC = r"""
startup_message off
hardstatus alwayslastline " kedge: Ctrl-a d leaves, the run goes on "
bindkey "\003" echo "Ctrl-C would stop the run: Ctrl-a C sends it, Ctrl-a d leaves"
bindkey "\032" echo "Ctrl-Z would pause the run: Ctrl-a Z sends it, Ctrl-a d leaves"
bindkey "\034" echo "Ctrl-\\ would kill the run, and isn't sent; Ctrl-a d leaves"
bind C stuff "\003"
bind Z stuff "\032"
"""


def _spoken(key: str) -> str:
    return key.upper().replace("C-", "Ctrl-")
