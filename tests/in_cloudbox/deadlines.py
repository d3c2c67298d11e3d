"""Moves the deadline of a machine that has booted.

A machine that is created with a short deadline may reach it during its boot, if the computer is busy.
"""

from __future__ import annotations

from tests.support.laptop import Laptop

_BRING_NEAR = """
set -e
margin=$(sed -n 's/.*"margin": \\([0-9]*\\).*/\\1/p' /opt/kedge/machine.json)
/opt/kedge/bin/kedge-agent extend --deadline $(($(date +%s) + {seconds} + margin))
sed -n 's/.*"deadline": \\([0-9]*\\).*/\\1/p' /opt/kedge/machine.json
"""


def timers(laptop: Laptop) -> tuple[float, float]:
    """Return the deadlines of the only live run's machine, by itself: the timer's that ends it, and the agent's."""
    show = "systemctl show --property=NextElapseUSecRealtime --value kedge-deadline.timer"
    script = f'date -d "$({show})" +%s; sed -n \'s/.*"deadline": \\([0-9]*\\).*/\\1/p\' /opt/kedge/machine.json'
    timer, agent = laptop.kedge("exec", "--", "sh", "-c", script).split()
    return float(timer), float(agent)


def bring_deadline_near(laptop: Laptop, *, seconds: int) -> int:
    """Move the deadline of the only live run's machine, as `kedge extend` does, and tell neither provider nor ledger.

    Args:
        laptop: where the run was launched.
        seconds: from now until the agent's deadline; the timer ends the machine some seconds later.

    Returns:
        The agent's deadline, in Unix seconds.
    """
    script = _BRING_NEAR.format(seconds=seconds)
    said = laptop.kedge("exec", "--admin", "--", "sudo", "sh", "-c", script)
    return int(said.split()[-1])
