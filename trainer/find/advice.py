"""What `advise` recommends, from figures that were measured or forecast. Pure."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainer.base.config import Settings
from trainer.step.batch import find_batch_concern, plan_batch

WIDTH = 80
_MIB, _GIB = 1024**2, 1024**3
_NO_BREAK = "\N{NO-BREAK SPACE}"
_HEADROOM = 0.9
"""The share of a device's memory that a step may use: the rest is for gaps, workspaces and longer batches."""
_QUICK_SECONDS = 0.002
_MOST_WORKERS = 8
_FEW_STEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the recipe and the machine.

    Attributes:
        samples: training samples.
        sample_seconds: the time to make one of them, measured here.
        cores: processor cores, here.
        memory: the most bytes of a step on one GPU, by micro-batch; None where a step ran out of memory. Empty if it
            isn't known.
        memory_source: how these figures were got, or why there are none.
        parts: bytes of weights, gradients and optimizer state, if known.
        available: bytes of one GPU's memory; 0 if not known.
        is_stream: whether the training data are a stream.
    """

    samples: int
    sample_seconds: float
    cores: int
    memory: Mapping[int, int | None]
    memory_source: str
    parts: Mapping[str, int]
    available: int
    is_stream: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """One number, and why it is recommended."""

    name: str
    value: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """Batch and peak rate for a number of GPUs."""

    gpus: int
    batch: int
    linear: float
    square_root: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Everything that `advise` prints."""

    gpus: int
    scaling: Sequence[Scaled]
    memory: Mapping[int, int | None]
    memory_source: str
    parts: Mapping[str, int]
    recommended: Sequence[Recommended]
    settings: Sequence[str]
    notes: Sequence[str]

    def dump(self) -> dict[str, Any]:
        """Return it as plain data; memory is in bytes."""
        return asdict(self)


def list_micro_batches(per_device: int, *, most: int = 5) -> list[int]:
    """List a process's share and its halves while they are whole, largest first."""
    sizes = [per_device]
    while sizes[-1] % 2 == 0 and len(sizes) < most:
        sizes.append(sizes[-1] // 2)
    return sizes


def choose_per_device(settings: Settings, *, gpus: int, samples: int) -> int:
    """Choose the samples of each GPU: those of one GPU now, or fewer if the data have no such batch."""
    return max(1, min(settings.batch_size, samples // gpus))


def shard_facts(facts: Facts, *, gpus: int, gathered: int) -> Facts:
    """Return the facts of a model that is sharded over all GPUs: each has its part of weights, gradients and state.

    Args:
        facts: of the whole model on one GPU.
        gpus: how many share it.
        gathered: bytes of the whole weights that a GPU has at once while it computes with them.
    """
    parts = {name: -(-part // gpus) for name, part in facts.parts.items()}
    saved = sum(facts.parts.values()) - sum(parts.values()) - gathered
    memory = {size: None if needed is None else needed - saved for size, needed in facts.memory.items()}
    source = f"{facts.memory_source}; estimated for {gpus} shards"
    return replace(facts, memory=memory, parts=parts, memory_source=source)


def plan_advice(settings: Settings, facts: Facts, *, gpus: int) -> Advice:
    """Recommend settings for a number of GPUs; `batch_size` of the settings is the batch of one GPU now.

    Raises:
        BadRequestError: there are fewer training samples than GPUs.
    """
    per_device = choose_per_device(settings, gpus=gpus, samples=facts.samples)
    micro_batch, micro_reason = _choose_micro_batch(facts, per_device)
    plan = plan_batch(
        batch_size=per_device * gpus,
        world_size=gpus,
        samples=facts.samples,
        epochs=settings.epochs,
        micro_batch=micro_batch,
    )
    counts = sorted({*(2**power for power in range(int(math.log2(gpus)) + 1)), gpus})
    scaling = [_scale(settings, count, per_device) for count in counts]
    rule, rate_reason = _choose_rule(settings)
    workers, workers_reason = _choose_workers(facts, per_device, gpus)
    kept = "as on one now" if per_device == settings.batch_size else f"not {settings.batch_size}: too few samples"
    accumulated = (
        "the share fits at once" if plan.accumulation == 1 else f"{per_device} = {plan.accumulation} x {micro_batch}"
    )
    base = settings.optimizer.base_batch or settings.batch_size
    chosen = [
        Recommended(name="batch_size", value=plan.batch_size, reason=f"{per_device} on each of {gpus} GPUs, {kept}"),
        Recommended(
            name="learning rate",
            value=scaling[-1].linear if rule == "linear" else scaling[-1].square_root,
            reason=f"{rate_reason}; {_rate(settings):.3g} at {base}",
        ),
        Recommended(name="micro_batch", value=micro_batch, reason=micro_reason),
        Recommended(name="accumulation", value=plan.accumulation, reason=accumulated),
        Recommended(name="workers", value=workers, reason=workers_reason),
    ]
    assigned = [f"batch_size={plan.batch_size}", f"optimizer.scaling={rule}", f"optimizer.base_batch={base}"]
    assigned += [f"micro_batch={micro_batch}"] if plan.accumulation > 1 else []
    steps = f"an epoch has only {plan.steps_per_epoch} steps: fewer GPUs or a smaller batch may learn better"
    notes = [steps] if plan.steps_per_epoch < _FEW_STEPS else []
    concern = find_batch_concern(plan)
    return Advice(
        gpus=gpus,
        scaling=scaling,
        memory=facts.memory,
        memory_source=facts.memory_source,
        parts=facts.parts,
        recommended=chosen,
        settings=[*assigned, f"workers={workers}"],
        notes=[*notes, *([concern] if concern else [])],
    )


def render_advice(advice: Advice) -> str:
    """Render it as a table of at most 80 columns."""
    lines = ["GPUs    batch  rate, linear  rate, square root"]
    lines += [f"{row.gpus:4}  {row.batch:7}  {row.linear:12.3g}  {row.square_root:17.3g}" for row in advice.scaling]
    lines += ["", *_wrap("micro-batch  memory of one GPU, ", advice.memory_source, indent=13)]
    lines += [f"{size:11}  {_show(needed)}" for size, needed in advice.memory.items()]
    if advice.parts:
        lines += _wrap(" " * 13, "of it " + ", ".join(f"{name} {_show(part)}" for name, part in advice.parts.items()))
    lines += ["", "recommended         "]
    for item in advice.recommended:
        lines += _wrap(f"{item.name:14}{item.value:9.4g}  ", item.reason)
    lines += [""]
    for note in advice.notes:
        lines += _wrap("note: ", note)
    # A space that isn't broken at, so that --set and its assignment stay on one line.
    assigned = " ".join(f"--set{_NO_BREAK}{assignment}" for assignment in advice.settings)
    lines += [line.replace(_NO_BREAK, " ") for line in _wrap("use   ", assigned)]
    return "\n".join(line.rstrip() for line in lines)


def _rate(settings: Settings) -> float:
    return settings.optimizer.rate * settings.optimizer.rate_factor


def _scale(settings: Settings, gpus: int, per_device: int) -> Scaled:
    batch = gpus * per_device
    ratio = batch / (settings.optimizer.base_batch or settings.batch_size)
    rate = _rate(settings)
    return Scaled(gpus=gpus, batch=batch, linear=rate * ratio, square_root=rate * math.sqrt(ratio))


def _choose_rule(settings: Settings) -> tuple[str, str]:
    if settings.optimizer.name == "sgd":
        return "linear", "linear, for sgd (Goyal et al., 2017)"
    return "sqrt", f"square root, for {settings.optimizer.name} (Malladi et al., 2022)"


def _choose_micro_batch(facts: Facts, per_device: int) -> tuple[int, str]:
    if not facts.memory:
        return per_device, "the whole share: the memory is not known"
    if not facts.available:
        return per_device, "the whole share: --memory-gib says what one GPU has"
    room = _HEADROOM * facts.available
    fitting = [size for size, needed in facts.memory.items() if needed is not None and needed <= room]
    if not fitting:
        least = min(facts.memory)
        return least, f"none fits into {_show(facts.available)}: use gradient_checkpointing or fully_shard"
    largest = max(fitting)
    return largest, f"{_show(facts.memory[largest])} of {_show(facts.available)}, a tenth left free"


def _choose_workers(facts: Facts, per_device: int, gpus: int) -> tuple[int, str]:
    seconds = per_device * facts.sample_seconds
    duration = f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
    made = f"{per_device} samples take {duration} to make here"
    if seconds < _QUICK_SECONDS:
        return 0, f"{made}: quicker than another process"
    if facts.is_stream:
        return 1, f"{made}; one process reads a stream"
    share = max(1, facts.cores // gpus)
    return min(_MOST_WORKERS, max(1, share - 1)), f"{made}; {facts.cores} cores here, {gpus} processes"


def _show(size: int | None) -> str:
    if size is None:
        return "out of memory"
    return f"{size / _GIB:.3g} GiB" if size >= _GIB / 10 else f"{size / _MIB:.3g} MiB"


def _wrap(head: str, text: str, indent: int | None = None) -> list[str]:
    tail = " " * (len(head) if indent is None else indent)
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=tail, break_on_hyphens=False)
