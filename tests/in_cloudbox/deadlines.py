"""Moves the deadline of a machine that has booted.

A machine that is created with a short deadline may reach it during its boot, if the computer is busy.
"""

from __future__ import annotations

from tests.support.laptop import Laptop

_BRING_NEAR = """
set -e
deadline=$(($(date +%s) + {seconds}))
timer=$(date -u -d "@$((deadline + {margin}))" '+%Y-%m-%d %H:%M:%S UTC')
sed -i "s/\\"deadline\\": [0-9]*/\\"deadline\\": $deadline/" /opt/kedge/machine.json
sed -i "s/^OnCalendar=.*/OnCalendar=$timer/" /etc/systemd/system/kedge-deadline.timer
systemctl daemon-reload
systemctl restart kedge-deadline.timer kedge-watch.service
grep -o "\\"deadline\\": $deadline" /opt/kedge/machine.json
"""


def bring_deadline_near(laptop: Laptop, *, seconds: int, margin: int = 30) -> int:
    """Move the deadline of the only live run's machine, in the two files that hold it since its boot.

    Args:
        laptop: where the run was launched.
        seconds: from now until the agent's deadline.
        margin: seconds from there until the timer, which is the last resort, ends the machine.

    Returns:
        The agent's deadline, in Unix seconds.
    """
    script = _BRING_NEAR.format(seconds=seconds, margin=margin)
    said = laptop.kedge("exec", "--admin", "--", "sudo", "sh", "-c", script)
    return int(said.split()[-1])
