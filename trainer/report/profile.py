"""`--profile steps=10..20`: a trace of some steps for Perfetto, a GPU's memory, and where the time went.

https://ui.perfetto.dev opens the trace, https://pytorch.org/memory_viz the snapshot.
"""

import gzip
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError, first_line
from trainer.base.files import write_atomically
from trainer.group.distributed import ProcessGroup
from trainer.report.time_shares import DATA, STEP, measure_shares, render_shares

logger = logging.getLogger(__name__)
T = TypeVar("T")
FOLDER = "profile"
_REQUEST = re.compile(r"steps=(\d+)\.\.(\d+)(,ranks=all)?")
_FIX = "write --profile steps=FIRST..LAST, for example steps=10..20; ,ranks=all traces every process"
# The last allocations and frees that a snapshot remembers; each takes a few KB.
_MEMORY_EVENTS = 100_000
_END: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """Which steps to trace. They count from 1, as in metrics.jsonl; `last` is included."""

    first: int
    last: int
    all_ranks: bool = False

    def check(self, total_steps: int) -> None:
        """Check that the run has these steps.

        Raises:
            BadRequestError: it ends earlier.
        """
        if self.last > total_steps:
            raise BadRequestError(
                f"--profile steps={self.first}..{self.last} is beyond the run",
                why=f"the run has {total_steps} steps",
                fix=f"choose steps from 1 to {total_steps}, after the first few, which are slower",
            )


def parse_profile(text: str) -> ProfileRequest:
    """Read the value of `--profile`.

    Raises:
        BadRequestError: it isn't `steps=FIRST..LAST` with 1 <= FIRST <= LAST.
    """
    found = _REQUEST.fullmatch(text)
    if found is None:
        raise BadRequestError(f"--profile {text} is not understood", why="it names the steps to trace", fix=_FIX)
    first, last = int(found[1]), int(found[2])
    if not 1 <= first <= last:
        raise BadRequestError(f"--profile {text} has no steps", why="steps count from 1, upwards", fix=_FIX)
    return ProfileRequest(first=first, last=last, all_ranks=found[3] is not None)


def open_profiler(
    request: ProfileRequest, total_steps: int, group: ProcessGroup, contract: RunContract, say: Callable[[str], None]
) -> "StepProfiler":
    """Make the profiler of a run.

    Raises:
        BadRequestError: the run ends before the steps to trace.
    """
    request.check(total_steps)
    return StepProfiler(
        request,
        contract.output_dir,
        device=group.device,
        rank=group.rank,
        say=say,
        path_for_user=contract.path_for_user,
    )


class StepProfiler:
    """Traces the steps of a request, as an observer of the loop.

    `close` writes what was traced until then, also after an error. Processes that the request leaves out trace nothing.
    """

    def __init__(
        self,
        request: ProfileRequest,
        folder: Path,
        *,
        device: torch.device,
        rank: int = 0,
        say: Callable[[str], None],
        path_for_user: Callable[[Path], Path] = Path,
    ) -> None:
        self._request = request if rank == 0 or request.all_ranks else None
        self._folder = folder / FOLDER
        self._device = device
        self._rank = rank
        self._say = say
        self._path_for_user = path_for_user
        self._profile: profile | None = None
        self._mark: record_function | None = None
        self._first = self._last = 0

    def follow(self, batches: Iterator[T], *, done: int) -> Iterator[T]:
        """Yield the batches of an epoch, and mark how long the loop waits for each.

        Args:
            batches: the rest of an epoch; each makes one step.
            done: the steps that the run has made before.
        """
        step = done
        while True:
            step += 1
            self._begin_wait(step)
            batch = next(batches, _END)
            self._end_mark()
            if batch is _END:
                return
            yield batch

    def begin_step(self, step: int) -> None:
        """Note that a step begins; `step` counts from 0."""
        self._begin_mark(f"{STEP} {step + 1}")

    def end_step(self, step: int) -> None:
        """Note that a step's work is queued; writes the trace after the last one."""
        self._end_mark()
        if self._profile is None or self._request is None:
            return
        self._last = step + 1
        if self._last >= self._request.last:
            self._finish(self._profile)

    def close(self) -> None:
        """Write what was traced if the loop ended before the last step. A failure is only logged."""
        self._end_mark()
        if self._profile is None:
            return
        try:
            self._finish(self._profile)
        except (OSError, RuntimeError) as err:
            logger.warning("the profile could not be written: %s", first_line(err))

    def _begin_wait(self, step: int) -> None:
        request = self._request
        if self._profile is None and request is not None and request.first <= step <= request.last:
            self._start(step)
        self._begin_mark(DATA)

    def _start(self, step: int) -> None:
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
            torch.cuda.synchronize(self._device)  # the trace begins with an idle device
            torch.cuda.memory._record_memory_history(max_entries=_MEMORY_EVENTS)
        # Else the library below torch's profiler prints two lines of its own to stderr (torch 2.13).
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        self._profile = profile(activities=activities, acc_events=True)  # else torch 2.11 warns
        self._profile.start()
        self._first = self._last = step

    def _finish(self, tracing: profile) -> None:
        self._profile = self._request = None
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # the kernels of the last step belong to it
        tracing.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        trace = _export(tracing)
        path = self._folder / f"{self._name()}.json.gz"
        write_atomically(path, lambda stream: stream.write(gzip.compress(trace, compresslevel=3)), durable=False)
        files = [f"{self._path_for_user(path)} (open in ui.perfetto.dev)"]
        if self._device.type == "cuda":
            files.append(self._dump_memory())
        shares = measure_shares(json.loads(trace)["traceEvents"])
        where = render_shares(shares) if shares else "no step was traced"
        self._say(f"profile steps {self._first}..{self._last}: {where}; {', '.join(files)}")

    def _dump_memory(self) -> str:
        path = self._folder / f"{self._name()}.memory.pickle"
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]  # torch leaves it untyped
        torch.cuda.memory._record_memory_history(enabled=None)
        return f"{self._path_for_user(path)} (open in pytorch.org/memory_viz)"

    def _name(self) -> str:
        name = f"steps-{self._first}-{self._last}"
        return name if self._rank == 0 else f"{name}.rank-{self._rank}"

    def _begin_mark(self, name: str) -> None:
        self._end_mark()
        if self._profile is not None:
            self._mark = record_function(name)
            self._mark.__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def _end_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)


def _export(tracing: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        tracing.export_chrome_trace(str(path))
        return path.read_bytes()
