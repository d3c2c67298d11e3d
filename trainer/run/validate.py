"""Validation: runs the model, without wrappers, over every validation sample; the processes share the samples.

It draws its random numbers from streams of its own, so that training goes on with the same bits wherever validation
happened or was interrupted.
"""

# Shape legend: B batch, M metrics.
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import nn

from trainer.base.errors import BadRequestError
from trainer.base.recipe import SetMetric, bind_loss
from trainer.base.sources import Batch
from trainer.run.run import Run, current_moment
from trainer.run.saving import handle_requests
from trainer.step.gradient import weigh_loss

STREAM = 1
"""Of the random numbers that validation draws."""


@torch.no_grad()
def validate(run: Run) -> dict[str, float] | None:
    """Measure the model, or its EMA, over all validation samples; None if asked to stop meanwhile. Collective.

    The metrics' names begin with `val_`, and are the same on every process, as are their values.

    Raises:
        BadRequestError: two of the recipe's metrics have the same name.
    """
    workload = run.workload
    with run.randomness.apart(STREAM, step=run.progress.step):
        run.learner.prepare_evaluation()
        means = _Means()
        set_metrics = {name: make() for name, make in workload.set_metrics.items()}
        for batch, count in run.stall_watchdog.follow(_shares(run)):
            if handle_requests(run):
                return None
            _add_batch(run, batch, count, means, set_metrics)
        try:
            parts = [means.average(run), _merge(run, set_metrics), _evaluate(run)]
        except _EvaluationStoppedError:
            return None
    measured = _join(parts)
    # Processes that differ by a rounding would decide differently which weights are the best.
    return run.group.broadcast_from_main(lambda: {f"val_{name}": value for name, value in measured.items()})


class _EvaluationStoppedError(BaseException):
    """Leaves the recipe's own evaluation, through any `except Exception` of it."""


@dataclass(slots=True)
class _Means:
    """Weighted sums of metrics on the device, by name, in float64: float32 loses small terms of a long sum."""

    sums: dict[str, float | torch.Tensor] = field(default_factory=dict)
    weights: dict[str, float | torch.Tensor] = field(default_factory=dict)

    def add(self, name: str, total: torch.Tensor, weight: float | torch.Tensor) -> None:
        """Add a batch's sum."""
        self.sums[name] = self.sums.get(name, 0.0) + total.double()
        weight = weight.double() if isinstance(weight, torch.Tensor) else weight
        self.weights[name] = self.weights.get(name, 0.0) + weight

    def average(self, run: Run) -> dict[str, float]:
        """Average over all processes; collective."""
        names = list(dict.fromkeys(chain.from_iterable(run.group.all_gather(list(self.sums)))))
        if not names:
            return {}
        parts = [part.get(name, 0.0) for part in (self.sums, self.weights) for name in names]
        device = run.group.device
        both_2M = torch.stack([torch.as_tensor(part, device=device, dtype=torch.float64) for part in parts]).view(2, -1)
        totals_M, weights_M = run.group.all_reduce_sum(both_2M).tolist()
        pairs = zip(totals_M, weights_M, strict=True)
        return {name: total / weight if weight else 0.0 for name, (total, weight) in zip(names, pairs, strict=True)}


def _shares(run: Run) -> Iterator[tuple[Batch, int]]:
    return run.validation_loader.shares(per_device=run.learner.smallest_micro_batch())


def _add_batch(run: Run, batch: Batch, count: int, means: _Means, set_metrics: Mapping[str, SetMetric]) -> None:
    """Measure one batch; a batch that is only padding just takes part in a sharded model's collectives."""
    if not count and run.learner.sharding is None:
        return
    workload = run.workload
    if workload.metrics is not None:
        measured = run.learner.call_evaluated(workload.metrics, batch)
        for name, values_B in measured.items():
            means.add(name, values_B[:count].double().sum(), count)
    else:
        loss, weight = _measure_loss(run, batch, count)
        if count:
            means.add("loss", weigh_loss(loss.double(), weight), weight)
    for name, metric in set_metrics.items():
        spare = metric if count else workload.set_metrics[name]()
        run.learner.call_evaluated(spare.update, batch)


def _measure_loss(run: Run, batch: Batch, count: int) -> tuple[torch.Tensor, float | torch.Tensor]:
    """Return the training loss of a batch and its weight, for a recipe without metrics."""
    loss, moment = bind_loss(run.workload.loss), current_moment(run)

    def measure(model: nn.Module, batch: Batch) -> torch.Tensor:
        return loss(model, batch, moment)

    weight = run.workload.weight(batch) if run.workload.weight else count
    return run.learner.call_evaluated(measure, batch), weight


def _merge(run: Run, set_metrics: Mapping[str, SetMetric]) -> dict[str, float]:
    """Merge the metrics of the whole set over the processes; collective."""
    merged: list[Mapping[str, float]] = []
    for name, metric in set_metrics.items():
        value = metric.merge(run.group.all_gather(metric.state()))
        merged.append(value if isinstance(value, Mapping) else {name: float(value)})
    return _join(merged)


def _evaluate(run: Run) -> dict[str, float]:
    """Call the recipe's own evaluation, and average its results over the processes; collective.

    Several processes handle no requests meanwhile: nobody knows that they take the same number of batches.
    """
    evaluate = run.workload.evaluate
    if evaluate is None:
        return {}
    counts: list[int] = []
    shares = _shares(run)  # collective, and not every process takes batches

    def batches() -> Iterator[Batch]:
        for batch, count in run.stall_watchdog.follow(shares):
            if run.group.size == 1 and handle_requests(run):
                raise _EvaluationStoppedError
            counts.append(count)
            if count or run.learner.sharding is not None:
                yield batch

    has_samples = run.group.rank < len(run.workload.validation_data) or run.learner.sharding is not None
    results = dict(run.learner.call_evaluated(evaluate, batches())) if has_samples else {}
    everyones = [(each, count) for each, count in run.group.all_gather((results, sum(counts))) if count]
    names = dict.fromkeys(chain.from_iterable(each for each, _ in everyones))
    return {name: _average([(each[name], count) for each, count in everyones if name in each]) for name in names}


def _average(values: list[tuple[float, int]]) -> float:
    return sum(float(value) * count for value, count in values) / sum(count for _, count in values)


def _join(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = list(chain.from_iterable(parts))
    if len(set(names)) < len(names):
        raise BadRequestError(
            "two metrics of the recipe have the same name",
            why=f"validation measures {', '.join(sorted(names))}",
            fix="give each of metrics, set_metrics and evaluate names of its own",
        )
    return {name: float(value) for part in parts for name, value in part.items()}
