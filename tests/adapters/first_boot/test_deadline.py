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
    # A second may begin between the two looks at the clock.
    assert LIFETIME - 60 < left <= LIFETIME
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


def move(scratch: Scratch, *deadline: str) -> int:
    """Run the script by which root moves the deadline; return its exit code."""
    return scratch.sh(f'sh "{scratch.state / "arm.sh"}" {" ".join(deadline)}').returncode


@pytest.mark.parametrize("by", [10 * LIFETIME, -LIFETIME // 2], ids=["later", "earlier"])
def test_root_moves_the_deadline_and_a_reboot_keeps_it_there(scratch: Scratch, by: int) -> None:
    """Also beyond the lifetime that the first boot has counted; the script waits until systemd has the new timer."""
    before, _ = arm(scratch)
    moved = before + by
    assert move(scratch, str(moved)) == 0
    assert scratch.systemctl_calls[-2:] == ["daemon-reload", "restart kedge-deadline.timer"]
    for boots in (False, True):
        if boots:
            arm(scratch)
        timer = timer_of(scratch)
        assert instant(timer["OnCalendar"]) == moved
        assert abs(int(timer["OnActiveSec"].removesuffix("s")) - (moved - time.time())) < 30
    assert deadline_path(scratch).read_text() == f"{moved}\n"


@pytest.mark.parametrize("wrong", ["soon", "''", "-5", "12.5"])
def test_what_is_no_time_moves_nothing(scratch: Scratch, wrong: str) -> None:
    """The timer isn't even started anew."""
    before, _ = arm(scratch)
    calls = len(scratch.systemctl_calls)
    assert move(scratch, wrong) == 2
    assert (instant(timer_of(scratch)["OnCalendar"]), len(scratch.systemctl_calls)) == (before, calls)


@pytest.mark.parametrize("what", ["deadline file", "timer", "systemctl"])
def test_whoever_moves_the_deadline_hears_of_a_failure(scratch: Scratch, what: str) -> None:
    """At a boot the rest is still worth trying; here nobody may believe that the timer was moved."""
    before, _ = arm(scratch)
    if what == "deadline file":
        deadline_path(scratch).with_name("digits-1.deadline.new").mkdir()
    if what == "timer":
        (scratch.units / "kedge-deadline.timer.new").mkdir()
    if what == "systemctl":
        scratch.replace_program("systemctl", "exit 1")
    assert move(scratch, str(before + 60)) == 1
