"""What the trainer costs on a GPU: a step beside a bare loop, the stall of a save, the loader. `make gpu` runs it.

Without a GPU it says so and exits with 0; --small tries its code with tiny sizes on any device.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from benchmarks.rounds import Benchmark, Contender, main
from benchmarks.trainer.networks import CLASSES, ResNet50, Transformer
from benchmarks.trainer.on_device import DEVICE, SMALL, Crops, Sizes, Task, lent_folder, synchronise, train
from trainer.base.files import write_atomically
from trainer.base.sources import Batch
from trainer.checkpoints.saver import Saver, TrainingSnapshot
from trainer.checkpoints.store import CheckpointStore
from trainer.checkpoints.tree import State
from trainer.data.loader import BatchLoader
from trainer.report.flops import training_flops_per_sample, utilisation
from trainer.report.hardware import device_name, find_peak_tflops

# Shape legend: B batch, C channels, H height, W width, L tokens.
IS_SMALL = "--small" in sys.argv


def fill(benchmark: Benchmark, sizes: Sizes) -> None:
    """Time steps, saves and loaders."""
    peak = find_peak_tflops(device_name(DEVICE))
    for make_task in (make_images, make_tokens):
        task = make_task(sizes)
        benchmark.measure(steps(task))
        benchmark.notes.append(describe_rate(task, peak))
    with (
        lent_folder() as folder,
        closing(Saver(CheckpointStore(folder, keep=1, fingerprint={}), device=DEVICE)) as saver,
    ):
        benchmark.measure(saves(folder, saver, sizes))
    benchmark.measure(loaders(sizes))
    benchmark.notes += [
        describe_run_with_loader(sizes),
        f"steps: bf16 autocast, AdamW, clipping, one batch that stays on the device; the median piece of {sizes.chunk}",
        f"save: {sizes.state_tensors} float32 tensors of {sizes.state_elements:,} elements; the folder is on disk",
        f"loader: crops of {sizes.pixels} px, {sizes.workers} workers, {sizes.loaded_batches} batches to the device",
        f"{device_name(DEVICE)}; torch {torch.__version__}",
    ]


def steps(task: Task) -> list[Contender]:
    """List the loops over one network."""
    peer = f"{task.name}: a step of a bare loop"

    def cleaned(run: Callable[[], float]) -> Callable[[], float]:
        def go() -> float:
            took = run()
            gc.collect()
            if DEVICE.type == "cuda":
                torch.cuda.empty_cache()
            return took

        return go

    return [
        Contender(name=peer, run=cleaned(task.bare)),
        Contender(name=f"{task.name}: a step of kedge", run=cleaned(task.kedge), against=peer, bar=1.03),
    ]


def make_images(sizes: Sizes) -> Task:
    """Make ResNet-50 with the largest batch that fits."""
    images = sizes.images
    while True:
        inputs_BCHW = torch.randn(images, 3, sizes.pixels, sizes.pixels, device=DEVICE)
        task = Task(
            name=f"ResNet-50, {images} x {sizes.pixels} px",
            make=ResNet50,
            inputs=inputs_BCHW.contiguous(memory_format=torch.channels_last),
            labels=torch.randint(CLASSES, (images,), device=DEVICE),
            sizes=sizes,
        )
        try:
            # Two pieces: the optimizer's state is in memory only after the first step.
            Task(**{**vars(task), "sizes": SMALL, "marks": [], "calls": 0}).bare()
        except torch.OutOfMemoryError:
            images //= 2
        else:
            return task
        torch.cuda.empty_cache()


def make_tokens(sizes: Sizes) -> Task:
    """Make the transformer."""
    tokens_BL = torch.randint(sizes.vocabulary, (sizes.rows, sizes.length), device=DEVICE)
    return Task(
        name=f"transformer, {sizes.rows} x {sizes.length} tokens",
        make=lambda: Transformer(
            layers=sizes.layers, width=sizes.width, length=sizes.length, vocabulary=sizes.vocabulary
        ),
        inputs=tokens_BL,
        labels=tokens_BL.roll(-1, dims=1),
        sizes=sizes,
    )


def describe_rate(task: Task, peak: float | None) -> str:
    """Say how many samples a second the trainer computes, and the share of the device's peak."""
    rate = len(task.inputs) / task.latest
    text = f"{task.name}: {rate:,.0f} samples/s with kedge"
    if peak is None:
        return f"{text}; no peak is known of this device, so no MFU"
    flops = training_flops_per_sample(task.make(), (task.inputs[:2].cpu(),))
    mfu = utilisation(flops_per_sample=flops, samples_per_second=rate, peak_tflops=peak, devices=1)
    return f"{text}, MFU {mfu:.1%} of {peak:,.0f} TFLOPS"


def saves(folder: Path, saver: Saver, sizes: Sizes) -> list[Contender]:
    """List what a loop waits for when it saves a state on the device."""
    state: State = {
        "model": {f"layer{n}": torch.rand(sizes.state_elements, device=DEVICE) for n in range(sizes.state_tensors)}
    }
    saver.reserve(state)
    saver.wait()
    numbers = iter(range(1, sys.maxsize))

    def torch_save() -> float:
        synchronise()
        begin = time.perf_counter()
        write_atomically(folder / "plain.pt", lambda stream: torch.save(state, stream))
        return time.perf_counter() - begin

    def stall() -> float:
        """Until the device could compute the next step: the copy is queued before it."""
        synchronise()
        begin = time.perf_counter()
        saver.save(TrainingSnapshot(step=next(numbers), state=state))
        synchronise()
        took = time.perf_counter() - begin
        saver.wait()
        return took

    stall()
    size = 4 * sizes.state_elements * sizes.state_tensors / 1e9
    peer = f"{size:.2g} GB: torch.save + fsync"
    return [
        Contender(name=peer, run=torch_save),
        Contender(name=f"{size:.2g} GB: kedge, loop and device", run=stall, against=peer, bar=0.03),
    ]


def loaders(sizes: Sizes) -> list[Contender]:
    """List loaders of the same pictures, from the first batch on the device to the last."""
    crops = Crops(sizes.images * sizes.loaded_batches, sizes.pixels)

    def plain() -> Iterator[Batch]:
        is_pinned = DEVICE.type == "cuda"
        loader = DataLoader(
            crops, batch_size=sizes.images, shuffle=True, num_workers=sizes.workers, pin_memory=is_pinned
        )
        for images_BCHW, labels_B in loader:
            yield images_BCHW.to(DEVICE, non_blocking=True), labels_B.to(DEVICE, non_blocking=True)

    def kedge() -> Iterator[Batch]:
        loader = BatchLoader(crops, seed=0, device=DEVICE, workers=sizes.workers)
        yield from loader.batches(epoch=0, batch_size=sizes.images)
        loader.close()

    peer = "loader: DataLoader, pinned, to the device"
    return [
        Contender(name=peer, run=partial(exhaust, plain)),
        Contender(name="loader: kedge", run=partial(exhaust, kedge), against=peer, bar=1 / 0.97),
    ]


def exhaust(start: Callable[[], Iterator[Batch]]) -> float:
    """Time an epoch of batches after the first one, which starts the workers."""
    batches = start()
    next(batches)
    begin = time.perf_counter()
    for _ in islice(batches, sys.maxsize):
        pass
    synchronise()
    return time.perf_counter() - begin


def describe_run_with_loader(sizes: Sizes) -> str:
    """Train ResNet-50 on loaded pictures, and say how long the loop waited for them."""

    def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        images_BCHW, labels_B = batch
        return functional.cross_entropy(model(images_BCHW.contiguous(memory_format=torch.channels_last)), labels_B)

    crops = Crops(sizes.images * sizes.loaded_batches, sizes.pixels)
    rows = train(ResNet50, loss, crops, sizes.images, workers=sizes.workers, log_every=sizes.loaded_batches // 2)
    last = [row for row in rows if "loss" in row][-1]
    return (
        f"ResNet-50 with this loader: {last['samples_per_second']:,.0f} images/s, {last['data_wait']:.0%} of the time "
        "waiting for data"
    )


if __name__ == "__main__":
    if DEVICE.type != "cuda" and not IS_SMALL:
        print("no GPU here: benchmarks/trainer/gpu.py measures nothing (--small tries its code)")
        sys.exit(0)
    # A table of another device, or of tiny sizes, is no result.
    left_out = {"--small"} | ({"--write"} if IS_SMALL or DEVICE.type != "cuda" else set())
    sys.argv = [argument for argument in sys.argv if argument not in left_out]
    chosen = SMALL if IS_SMALL else Sizes()
    main("gpu", f"The trainer on a GPU: {device_name(DEVICE)}", partial(fill, sizes=chosen), rounds=chosen.rounds)
