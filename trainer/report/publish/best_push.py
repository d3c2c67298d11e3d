"""Pushes new best weights to the Hub during a training, from a thread of the main process.

Training never waits for it. The thread looks for new best weights among the checkpoints; of several that were saved
during one push, only the latest is pushed. A push that fails is one line, and the next best weights are tried again.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trainer.base.config import PublishSettings
from trainer.base.errors import TrainerError, first_line
from trainer.base.files import TEMPORARY_SUFFIX
from trainer.base.hub import HubAccess
from trainer.checkpoints.header import read_header
from trainer.checkpoints.store import CheckpointStore
from trainer.report.console import render_metric
from trainer.report.publish.hub import push

WEIGHTS_FILE = "model.safetensors"
SECONDS_BETWEEN_LOOKS = 1.0
Say = Callable[[str], None]
Push = Callable[[Path, str], object]
"""Pushes a file of weights, with a message."""


class BestPusher:
    """Pushes each new best of a folder of checkpoints; without `push`, nothing."""

    def __init__(
        self, store: CheckpointStore, push: Push | None, say: Say, *, seconds: float = SECONDS_BETWEEN_LOOKS
    ) -> None:
        """Describe what is to be pushed.

        Args:
            store: where the best weights are.
            push: pushes one file.
            say: prints a line.
            seconds: between two looks.
        """
        self._store = store
        self._push = push
        self._say = say
        self._seconds = seconds
        self._ended = threading.Event()
        # A push that hangs doesn't keep a stopped run alive.
        self._thread = threading.Thread(target=self._watch, name="push-best", daemon=True)

    def start(self) -> None:
        """Start to look for new best weights."""
        if self._push:
            self._thread.start()

    def close(self) -> None:
        """Push no others; one push may still be under way."""
        self._ended.set()

    def wait(self) -> None:
        """Wait until no push is under way, so that whatever is pushed next is the last."""
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        done: Path | None = None
        while not self._ended.wait(self._seconds):
            newest = next(iter(self._store.list_best()), None)
            if newest and newest != done:
                done = newest
                self._try(newest)

    def _try(self, best: Path) -> None:
        try:
            with _kept(best) as file:
                self._push_file(file)
        except (TrainerError, OSError, ValueError, LookupError) as err:
            why = err.why if isinstance(err, TrainerError) else first_line(err)
            self._say(f"the best weights were not pushed, and training goes on: {why}")

    def _push_file(self, file: Path) -> None:
        message = _describe(read_header(file).plain)
        if self._push:
            self._push(file, message)
        self._say(f"pushed the best weights: {message}")


def open_pusher(
    settings: PublishSettings, store: CheckpointStore, access: HubAccess, say: Say, *, name: str, is_possible: bool
) -> BestPusher:
    """Make the pusher that the settings ask for.

    Args:
        settings: where to push.
        store: the run's checkpoints.
        access: to the Hub.
        say: prints a line.
        name: the recipe's, for the message.
        is_possible: whether the best weights are one file, with the weights that are published at the end.
    """
    if settings.hub_during and not is_possible:
        say("publish.hub_during ignored: the recipe publishes other weights than it trains; they are pushed at the end")

    def push_file(file: Path, message: str) -> None:
        push(
            settings.hub_repo, {WEIGHTS_FILE: file}, access, private=settings.hub_private, message=f"{name}: {message}"
        )

    return BestPusher(store, push_file if settings.hub_during and is_possible else None, say)


@contextmanager
def _kept(best: Path) -> Iterator[Path]:
    """Keep a file for as long as it is uploaded: a better one may replace it. Its link is a temporary file's name."""
    link = best.with_name(f".{best.name}.push{TEMPORARY_SUFFIX}")
    with suppress(OSError):  # a file system without links
        link.unlink(missing_ok=True)
        os.link(best, link)
    try:
        yield link if link.exists() else best
    finally:
        link.unlink(missing_ok=True)


def _describe(state: dict[str, Any]) -> str:
    rating = state["rating"]
    return f"{render_metric(rating['metric'], rating['value'])} after epoch {state['epoch']}, step {state['step']:,}"
