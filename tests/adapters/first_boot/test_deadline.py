"""The deadline: armed at the first boot, and kept across reboots."""

from __future__ import annotations

import time

import pytest

from tests.adapters.first_boot.scratch import (
    LIFETIME,
    Scratch,
    arm,
    deadline_path,
    instant,
    run,
    timer_of,
)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_first_boot_fixes_an_absolute_deadline(scratch: Scratch, shell: str) -> None:
    """That boot starts the timer, and enables it for later boots."""
    before = int(time.time())
    deadline, left = arm(scratch, shell)
    assert before + LIFETIME <= deadline <= time.time() + LIFETIME
    assert left == LIFETIME
    assert scratch.systemctl_calls == [
        "daemon-reload",
        "--no-block restart kedge-deadline.timer",
        "--no-reload enable kedge-deadline.timer",
    ]


def test_a_reboot_does_not_extend_the_deadline(scratch: Scratch) -> None:
    """The time left shrinks by the time that has passed."""
    deadline, _ = arm(scratch)
    earlier = deadline - 600
    deadline_path(scratch).write_text(f"{earlier}\n")
    assert arm(scratch)[0] == earlier
    assert arm(scratch)[0] == earlier
    assert LIFETIME - 660 < arm(scratch)[1] <= LIFETIME - 600


def test_a_deadline_that_has_passed_ends_the_machine_at_once(scratch: Scratch) -> None:
    """The machine may have been off at its deadline. A timer with only a time in the past would never elapse."""
    deadline, _ = arm(scratch)
    deadline_path(scratch).write_text(f"{deadline - 10 * LIFETIME}\n")
    assert arm(scratch)[1] == 1


def test_a_clock_that_was_ahead_at_first_boot_does_not_delay_the_end(scratch: Scratch) -> None:
    """The timer also counts the lifetime from the boot."""
    deadline, _ = arm(scratch)
    deadline_path(scratch).write_text(f"{deadline + 100 * LIFETIME}\n")
    assert arm(scratch)[1] == LIFETIME


@pytest.mark.parametrize("content", ["", "soon", "12\n13"])
def test_a_damaged_deadline_file_is_written_again(scratch: Scratch, content: str) -> None:
    """A late deadline is better than none."""
    arm(scratch)
    deadline_path(scratch).write_text(content)
    deadline, _ = arm(scratch)
    assert time.time() < deadline <= time.time() + LIFETIME
    assert deadline_path(scratch).read_text() == f"{deadline}\n"


def test_the_timer_is_armed_if_the_deadline_cannot_be_stored(scratch: Scratch) -> None:
    """If one step fails, the others still run."""
    scratch.state.write_text("a file in the folder's place")
    deadline, left = arm(scratch)
    assert (deadline > time.time(), left) == (True, LIFETIME)
    assert "--no-block restart kedge-deadline.timer" in scratch.systemctl_calls


def test_systemd_accepts_the_deadlines_units(scratch: Scratch) -> None:
    """It reads the same time from the timer as the script has stored."""
    deadline, _ = arm(scratch)
    units = [str(scratch.units / f"kedge-deadline.{kind}") for kind in ("service", "timer")]
    done = run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = run(["systemd-analyze", "calendar", timer_of(scratch)["OnCalendar"]])
    normal = next(line for line in done.stdout.splitlines() if "Normalized form:" in line)
    assert instant(normal.split(": ")[1]) == deadline
