"""Validation: runs the model, without wrappers, over every validation sample; the processes share the samples."""

# Shape legend: B batch, M metrics.
from itertools import chain

import torch

from trainer.run.run import Run, handle_requests


@torch.no_grad()
def validate(run: Run) -> dict[str, float] | None:
    """Measure the model, or its EMA, over all validation samples; None if asked to stop meanwhile."""
    run.learner.prepare_evaluation()
    samples = len(run.workload.validation_data)
    metrics = run.workload.metrics
    assert metrics is not None
    sums: dict[str, torch.Tensor] = {}
    shares = run.validation_loader.shares(per_device=run.learner.smallest_micro_batch())
    for batch, count in run.stall_watchdog.follow(shares):
        if handle_requests(run):
            return None
        with run.learner.precision.autocast():
            measured = run.learner.call_evaluated(metrics, batch)
        for name, values_B in measured.items():
            total = values_B[:count].float().sum()
            sums[name] = sums.get(name, torch.zeros((), device=run.group.device)) + total
    return _average(run, sums, samples)


def _average(run: Run, sums: dict[str, torch.Tensor], samples: int) -> dict[str, float]:
    names = list(dict.fromkeys(chain.from_iterable(run.group.all_gather(list(sums)))))
    zero = torch.zeros((), device=run.group.device)
    totals_M = run.group.all_reduce_sum(torch.stack([sums.get(name, zero).double() for name in names]))
    return {f"val_{name}": total / samples for name, total in zip(names, totals_M.tolist(), strict=True)}
