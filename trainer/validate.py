"""Validation: the bare model over every validation sample, shared by the processes."""

# Shape legend: B batch, M metrics.
from itertools import chain

import torch

from trainer.data import SliceSampler, load_batches
from trainer.run import Run, must_stop


@torch.no_grad()
def validate(run: Run) -> dict[str, float] | None:
    """Measure the bare model, or its average, over all validation samples; None where told to stop meanwhile."""
    run.learner.prepare_evaluation()
    samples = len(run.workload.validation_data)
    sampler = SliceSampler(
        samples=samples, per_device=run.learner.smallest_micro_batch(), rank=run.world.rank, world_size=run.world.size
    )
    sums: dict[str, torch.Tensor] = {}
    batches = load_batches(
        run.workload.validation_data,
        sampler,
        seed=run.settings.seed,
        device=run.world.device,
        workers=run.settings.workers,
    )
    for number, batch in enumerate(run.stall_watch.follow(batches)):
        if must_stop(run):
            return None
        with run.learner.precision.autocast():
            measured = run.workload.metrics(run.learner.evaluated, batch)
        for name, values_B in measured.items():
            total = values_B[: sampler.count(number)].float().sum()
            sums[name] = sums.get(name, torch.zeros((), device=run.world.device)) + total
    return _average(run, sums, samples)


def _average(run: Run, sums: dict[str, torch.Tensor], samples: int) -> dict[str, float]:
    names = list(dict.fromkeys(chain.from_iterable(run.world.gather(list(sums)))))
    zero = torch.zeros((), device=run.world.device)
    totals_M = run.world.sum(torch.stack([sums.get(name, zero).double() for name in names]))
    return {f"val_{name}": total / samples for name, total in zip(names, totals_M.tolist(), strict=True)}
