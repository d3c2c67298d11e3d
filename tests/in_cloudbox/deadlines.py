"""Deadlines that come soon, on machines that have booted with a later one.

A deadline that a machine is created with has to leave time for its boot, which is long where the computer is busy; and
the test waits for all of it.
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
    """Change when the only live run's machine ends, in the two files in which its boot has written it.

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
