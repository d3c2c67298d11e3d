"""Requests the reports of many machines at once, so that a slow or silent machine doesn't delay the others."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from orchestrator.core.machine import Machine
from orchestrator.engine.observing.observe import MachineAnswer, question
from orchestrator.engine.world import World

_AT_ONCE = 16

_Question = tuple[World, Machine]
_Waiting = queue.SimpleQueue[tuple[Future[MachineAnswer], _Question]]


def ask_each(questions: Sequence[_Question]) -> list[MachineAnswer]:
    """Request a report from each machine, 16 at a time; the answers are in the order of the questions.

    Ctrl-C cancels all requests at once, whatever the machines do.
    """
    if len(questions) < 2:
        return [question(*each) for each in questions]
    answers: list[Future[MachineAnswer]] = [Future() for _ in questions]
    waiting: _Waiting = queue.SimpleQueue()
    for each in zip(answers, questions, strict=True):
        waiting.put(each)
    for _ in range(min(_AT_ONCE, len(questions))):
        # Daemon threads, unlike an executor's, so that the interpreter doesn't wait for them after Ctrl-C.
        threading.Thread(target=_answer, args=(waiting,), daemon=True).start()
    try:
        return [answer.result() for answer in answers]
    except BaseException:
        _take_all(waiting)
        for world, _ in questions:
            world.connector.close()
        raise


def _answer(waiting: _Waiting) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            answer, each = waiting.get_nowait()
            try:
                answer.set_result(question(*each))
            except BaseException as err:  # noqa: BLE001 - whoever waits for the answer raises it
                answer.set_exception(err)


def _take_all(waiting: _Waiting) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            waiting.get_nowait()
