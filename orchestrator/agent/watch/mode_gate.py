"""Begins a run's next mode on several machines: on all of them once all have finished the present one, or on none."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..base.config import GATE, present_mode, read_gate, read_next_mode
from ..base.files import write_json
from ..base.layout import Layout
from ..base.wire import FAILED, LOST_PEER, STOPPED, SUCCEEDED, WAITING, Command, MachineConfig, RunConfig
from ..nodes.gate import GateKeeper, Standing, ask_head
from ..nodes.group import Group, group_of_modes
from ..run.start import enter_mode

ROUND_SECONDS = 1.0

_Present = Callable[[], "tuple[RunConfig, Command] | None"]


class ModeGate:
    """What the watch of each machine does between two modes."""

    def __init__(self, layout: Layout, machine: MachineConfig, present: _Present) -> None:
        """Set it up.

        Args:
            layout: the machine's paths.
            machine: the machine.
            present: returns the run's present mode, and the state of its tasks together; None without a run.
        """
        self._layout = layout
        self._machine = machine
        self._present = present
        self._keeper: GateKeeper | None = None
        self._waits_since = 0.0
        self._silent_since = 0.0

    def step(self) -> None:
        """Tell the other machines how far this one is, and begin the next mode if it is time."""
        present = self._present()
        group = group_of_modes(present[0], self._machine) if present else None
        following = read_next_mode(self._layout) if group else None
        if present is None or group is None or not (present[0].sequence or following):
            self._close()
            return
        run, command = present
        if present_mode(self._layout)[0] != run.sequence:
            # The mode was entered after the watch's last look at its tasks.
            return
        own = Standing(run.sequence, command.state, command.reason)
        has_finished = own.state == SUCCEEDED and following is not None
        self._waits_since = (self._waits_since or time.monotonic()) if has_finished else 0.0
        found = self._ask(group, own, following) if group.rank else self._lead(group, own, following)
        if has_finished and following is not None and found.sequence > run.sequence:
            enter_mode(self._layout, following)
        self._note(found if found.sequence == run.sequence else Standing(run.sequence))

    def _lead(self, group: Group, own: Standing, following: RunConfig | None) -> Standing:
        """Decide for all machines; the head enters a mode first, and the others when they hear of it."""
        if self._keeper is None or self._keeper.group != group:
            self._close()
            self._keeper = GateKeeper(group)
        told = self._judge(group, own, following) if following else Standing(own.sequence)
        self._keeper.answer(told if told.sequence == own.sequence else Standing(own.sequence))
        return told

    def _judge(self, group: Group, own: Standing, following: RunConfig) -> Standing:
        """Return the mode in which the run may be; or why it is held back, or has ended."""
        here = Standing(own.sequence)
        if own.state in _ENDED:
            return here._replace(state=own.state, reason=f"the head has {_ENDED[own.state]}: {own.reason}")
        if own.state != SUCCEEDED:
            return here
        others = {rank: self._look_at(group, rank, own) for rank in range(1, group.size)}
        lost = [each for each in others.values() if each.state in _ENDED]
        if lost and not (group.is_elastic and group.size - len(lost) >= group.least):
            return lost[0]
        if missing := [group.name(rank) for rank, each in others.items() if each.state == WAITING]:
            return here._replace(reason=f"{_named(following)} starts once {' and '.join(missing)} has finished")
        return Standing(own.sequence + 1)

    def _look_at(self, group: Group, rank: int, own: Standing) -> Standing:
        """Return whether another machine has finished this mode, is waited for, or has ended it in another way."""
        told = self._keeper.standings if self._keeper else {}
        heard, standing = told.get(rank, (0.0, Standing(-1)))
        is_here = standing.sequence == own.sequence
        if standing.sequence > own.sequence or (is_here and standing.state == SUCCEEDED):
            return Standing(own.sequence, SUCCEEDED)
        if is_here and standing.state in _ENDED:
            why = f"{group.name(rank)} has {_ENDED[standing.state]}: {standing.reason}"
            return Standing(own.sequence, standing.state, why)
        if time.monotonic() - max(heard, self._waits_since) > group.patience:
            return Standing(own.sequence, FAILED, f"{group.name(rank)} has not been heard of for {group.patience:g} s")
        return Standing(own.sequence, WAITING)

    def _ask(self, group: Group, own: Standing, following: RunConfig | None) -> Standing:
        """Ask the head; if it is silent for too long, the run has failed, because machines that wait cost money."""
        if following is None:
            return Standing(own.sequence)
        now = time.monotonic()
        try:
            answer = ask_head(group, own)
        except OSError as err:
            self._silent_since = self._silent_since or now
            if self._waits_since and now - max(self._silent_since, self._waits_since) > group.patience:
                why = f"{LOST_PEER}: {group.name(0)} has not answered for {group.patience:g} s: {err}"
                return Standing(own.sequence, FAILED, why)
            return Standing(own.sequence, "", f"{_named(following)} starts when the head says so")
        self._silent_since = 0.0
        return answer if answer.sequence >= own.sequence else Standing(own.sequence)

    def _note(self, found: Standing) -> None:
        """Record why the next mode doesn't begin yet, or any more; the state of the run follows from it."""
        if read_gate(self._layout)[:3] != found:
            write_json(self._layout.note(GATE), {**found._asdict(), "since": time.time()})

    def _close(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None


_ENDED = {FAILED: "failed", STOPPED: "been stopped"}


def _named(mode: RunConfig) -> str:
    return f"mode {mode.mode or 'run'}"
