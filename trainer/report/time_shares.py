"""Where the time of some training steps went, from a trace in Chrome's format as torch.profiler writes it. Pure.

Each instant counts once. On a GPU what the device does comes first: data that is loaded meanwhile costs nothing, and
neither does communication beside other kernels. On a CPU the loop does one after the other, and operators that make a
batch belong to the data.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DATA = "loop: wait for data"
STEP = "loop: step"
_KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_COMMUNICATION = ("c10d::", "gloo:", "nccl:", "mpi:", "ucc:")
_NO_OPERATORS = ("autograd::", "profiler::", *_COMMUNICATION)
_COMPILED = "## Call CompiledFxGraph"
Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Shares of the wall time; they add up to 1. `host` is what is left: Python, launches, logging, saving."""

    data: float
    device: float
    communication: float
    host: float


def measure_shares(events: Iterable[Mapping[str, Any]]) -> TimeShares | None:
    """Divide the time from the first mark of the loop to the last; None if the trace has none.

    Args:
        events: the trace's `traceEvents`; the loop's marks are annotations named `DATA`, and `STEP` with a number.
    """
    spans = [event for event in events if event.get("ph") == "X"]
    marks = [event for event in spans if _is_mark(event)]
    if not marks:
        return None
    begin, end = min(event["ts"] for event in marks), max(event["ts"] + event["dur"] for event in marks)
    loop = {(event["pid"], event["tid"]) for event in marks}
    data = [event for event in marks if event["name"] == DATA]
    kernels = [event for event in spans if event.get("cat") in _KERNELS]
    if kernels:
        collectives = [event for event in kernels if "nccl" in event["name"].lower()]
        device = [event for event in kernels if "nccl" not in event["name"].lower()]
        order = {"device": device, "communication": collectives, "data": data}
    else:
        device = [event for event in spans if (event["pid"], event["tid"]) in loop and _is_operator(event)]
        collectives = [event for event in spans if event["name"].startswith(_COMMUNICATION)]
        order = {"data": data, "device": device, "communication": collectives}
    return _divide(order, begin, end)


def render_shares(shares: TimeShares) -> str:
    """Describe the shares in whole per cent that add up to 100."""
    names = ("data", "device", "communication", "host")
    return ", ".join(
        f"{name} {percent} %"
        for name, percent in zip(names, _whole([getattr(shares, name) for name in names]), strict=True)
    )


def _is_mark(event: Mapping[str, Any]) -> bool:
    name = event.get("name", "")
    return event.get("cat") == "user_annotation" and (name == DATA or name.startswith(STEP))


def _is_operator(event: Mapping[str, Any]) -> bool:
    name = event["name"]
    if name.startswith(_COMPILED):
        return True
    return event.get("cat") == "cpu_op" and "::" in name and not name.startswith(_NO_OPERATORS)


def _divide(order: Mapping[str, Sequence[Mapping[str, Any]]], begin: float, end: float) -> TimeShares:
    """Give each instant to the first kind of event that covers it, and the rest to the host."""
    taken: list[Span] = []
    shares: dict[str, float] = {}
    covered = 0.0
    for name, events in order.items():
        clipped = ((max(begin, event["ts"]), min(end, event["ts"] + event["dur"])) for event in events)
        taken = list(_unite([*taken, *(span for span in clipped if span[0] < span[1])]))
        total = sum(until - since for since, until in taken)
        shares[name] = (total - covered) / max(end - begin, 1e-9)
        covered = total
    return TimeShares(**shares, host=max(0.0, 1 - sum(shares.values())))


def _unite(spans: Iterable[Span]) -> Iterator[Span]:
    """Join spans that overlap or touch."""
    since, until = None, 0.0
    for begin, end in sorted(spans):
        if since is None:
            since, until = begin, end
        elif begin <= until:
            until = max(until, end)
        else:
            yield since, until
            since, until = begin, end
    if since is not None:
        yield since, until


def _whole(shares: Sequence[float]) -> list[int]:
    """Round to whole per cent by the largest remainder, so that the sum stays 100."""
    exact = [100 * share for share in shares]
    whole = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda place: whole[place] - exact[place])
    for place in by_remainder[: 100 - sum(whole)]:
        whole[place] += 1
    return whole
