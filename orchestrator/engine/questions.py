"""Asks many machines how they are at once: one that is slow, or never answers, keeps none of the others waiting."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from orchestrator.core.machine import Machine
from orchestrator.engine.observe import Answer, question
from orchestrator.engine.world import World

_AT_ONCE = 16

_Question = tuple[World, Machine]
_Waiting = queue.SimpleQueue[tuple[Future[Answer], _Question]]


def ask_each(questions: Sequence[_Question]) -> list[Answer]:
    """Ask each machine how it is, up to 16 at once; the answers come in the order of the questions.

    Ctrl-C ends all questions at once, whatever a machine does.
    """
    if len(questions) < 2:
        return [question(*each) for each in questions]
    answers: list[Future[Answer]] = [Future() for _ in questions]
    waiting: _Waiting = queue.SimpleQueue()
    for each in zip(answers, questions, strict=True):
        waiting.put(each)
    for _ in range(min(_AT_ONCE, len(questions))):
        # Daemons, unlike an executor's threads: the interpreter doesn't wait for them after Ctrl-C.
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
