"""The memory that a state is copied to: how much, where, and what is pinned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.checkpoints.staging import PAGE_BYTES, Staging, StagingSize, plan_layout


class RecordedPages:
    """Pins nothing, and remembers what it was asked for."""

    def __init__(self, *, allowed: bool = True) -> None:
        self.allowed = allowed
        self.pinned: dict[int, int] = {}

    def pin(self, address: int, size: int) -> bool:
        if self.allowed:
            self.pinned[address] = size
        return self.allowed

    def unpin(self, address: int) -> None:
        del self.pinned[address]


def test_pinned_memory_is_whole_pages_and_little_more_than_the_state() -> None:
    """1.1 MB pin 1.2 MB and not 2 MB; more is pinned beside it, and all of it is unpinned in the end."""
    pages = RecordedPages()
    staging = Staging(pages)
    staging.reserve(StagingSize(sizes=(1_000_000, 100_000), is_pinned=True))
    staging.reserve(StagingSize(sizes=(1_000_000, 110_000), is_pinned=True))
    ((address, size),) = pages.pinned.items()
    assert address % PAGE_BYTES == size % PAGE_BYTES == 0
    assert 1_110_000 <= size < 1_200_000
    staging.reserve(StagingSize(sizes=(1_000_000, 2_000_000), is_pinned=True))
    assert sorted(pages.pinned.items()) == sorted(staging.blocks)
    assert len(pages.pinned) == 2
    staging.close()
    assert not pages.pinned


def test_memory_that_cannot_be_pinned_is_used_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """A container's limit on locked memory: saves are slower, and a warning says so."""
    staging = Staging(RecordedPages(allowed=False))
    staging.reserve(StagingSize(sizes=(5_000_000,), is_pinned=True))
    assert staging.has_room(StagingSize(sizes=(5_000_000,), is_pinned=True))
    assert "5 MB can't be pinned: each save waits for its copy" in caplog.text
    staging.close()


@given(sizes=st.lists(st.integers(0, 300_000), max_size=20), blocks=st.lists(st.integers(0, 400_000), max_size=4))
def test_any_layout_has_no_overlap_and_fits(sizes: list[int], blocks: list[int]) -> None:
    """Tensors lie in order, each within one block; with the added block, the same plan needs no other one."""
    layout = plan_layout(sizes, blocks)
    held = [*blocks, layout.added] if layout.added else blocks
    ends = [0] * len(held)
    for (block, begin), size in zip(layout.places, sizes, strict=True):
        assert begin == ends[block]
        ends[block] += size
    assert all(end <= size for end, size in zip(ends, held, strict=True))
    assert [block for block, _ in layout.places] == sorted(block for block, _ in layout.places)
    assert plan_layout(sizes, held).added == 0
