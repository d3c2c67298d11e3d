"""Batches on their way to a GPU: copied on a stream of their own, right under long kernels; skipped without a GPU."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from trainer.base.sources import Batch
from trainer.data.loader import BatchLoader
from trainer.data.sources import ArraySource

# Shape legend: B batch, C channels.
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = torch.device("cuda", 0)
LONG_CYCLES = 20_000_000


class Constant:
    """Large samples of one number, with a list and a text beside them."""

    def __len__(self) -> int:
        return 64

    def sample(self, index: int, rng: np.random.Generator) -> Batch:  # noqa: ARG002
        return {"pixels": torch.full((512, 512), float(index)), "boxes": [torch.tensor([index])], "name": str(index)}


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_stay_whole_while_long_kernels_run(workers: int) -> None:
    """Each step reads its batch late, when the following ones have been copied: every pixel is still its own."""
    loader = BatchLoader(Constant(), seed=1, device=GPU, workers=workers)
    checks = []
    for epoch in range(2):
        for batch in loader.batches(epoch=epoch, batch_size=8):
            torch.cuda._sleep(LONG_CYCLES)  # type: ignore[no-untyped-call]  # torch leaves it untyped
            pixels_BC = batch["pixels"].flatten(1)
            expected_B = torch.tensor([float(name) for name in batch["name"]], device=GPU)
            checks.append((pixels_BC == expected_B[:, None]).all())
            assert batch["boxes"][0][0].device == GPU
    loader.close()
    assert len(checks) == 16
    assert all(bool(check) for check in checks)


def test_ragged_batches_and_objects_that_move_themselves_arrive() -> None:
    """Packed sequences and sparse tensors are moved after the rest, by torch's own means."""

    def collate(samples: list[Batch]) -> Batch:
        rows = [sample["pixels"][0] for sample in samples]
        return (
            torch.nn.utils.rnn.pack_sequence(rows),
            torch.stack(rows).to_sparse(),
            [sample["boxes"] for sample in samples],
        )

    loader = BatchLoader(Constant(), seed=1, device=GPU, collate=collate, workers=1)
    for packed, sparse, boxes in loader.batches(epoch=0, batch_size=8):
        assert (packed.data.device, sparse.device, boxes[7][0].device) == (GPU, GPU, GPU)
        assert packed.batch_sizes.device.type == "cpu"
    loader.close()


def test_an_abandoned_epoch_is_followed_by_a_whole_one() -> None:
    """The thread of the first epoch ends, and the second has all of its batches."""
    loader = BatchLoader(Constant(), seed=1, device=GPU, workers=2)
    next(loader.batches(epoch=0, batch_size=8))
    assert sum(1 for _ in loader.batches(epoch=1, batch_size=8)) == 8
    loader.close()


def test_what_is_on_the_device_is_neither_pinned_nor_copied() -> None:
    """A batch made of a tensor on the GPU is that tensor."""
    values_B = torch.arange(32, device=GPU)

    def collate(_samples: Sequence[Batch]) -> Batch:
        return values_B

    loader = BatchLoader(ArraySource(values_B), seed=1, device=GPU, collate=collate)
    assert all(batch.data_ptr() == values_B.data_ptr() for batch in loader.batches(epoch=0, batch_size=8))
