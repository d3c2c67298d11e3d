"""The same work on many things at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from orchestrator.adapters.objects.tally import Tally

_Item = TypeVar("_Item")


def in_parallel(work: Callable[[_Item], None], items: Iterable[_Item], tally: Tally, *, workers: int) -> None:
    """Do the work on every item; the first failure, or Ctrl-C, ends what counts at the tally and cancels the rest.

    Raises:
        Exception: what the work raised first.
    """
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            tally.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
