"""Host memory that a state is copied to, so that training goes on while a thread writes the copy.

The memory is reused, and its pages are touched in advance: the first touch of 500 MB takes longer than ten copies into
it. A copy from a GPU goes to pinned memory and is queued on the device's stream, ahead of the next step's kernels: the
loop doesn't wait for it, and the next step can't overtake it.

Pinned memory is ordinary memory that is registered with CUDA: torch's own pinned blocks are rounded up to powers of two
(a state of 1.1 GB pins 2 GB). A state that outgrows its memory gets another block; the first is never pinned again.
"""

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

PAGE_BYTES = 4096
# For what the next saves may have in addition: an optimizer's late state, weights that aren't in the state.
_HEADROOM = 1 / 16
_LEAST_HEADROOM_BYTES = 1 << 16
# cudaHostRegisterPortable: pinned for every context of this process.
_PORTABLE = 1
logger = logging.getLogger(__name__)
Key = Hashable


class Pages(Protocol):
    """Pins and unpins whole pages of memory."""

    def pin(self, address: int, size: int) -> bool:
        """Pin `size` bytes; return False if they can't be pinned."""

    def unpin(self, address: int) -> None:
        """Unpin what `pin` pinned."""


class CudaPages:
    """Registers memory with CUDA, or with ROCm under the same name. Works for the calling thread's device."""

    def pin(self, address: int, size: int) -> bool:
        """Register `size` bytes; return False if the system's limits forbid it."""
        return int(torch.cuda.cudart().cudaHostRegister(address, size, _PORTABLE)) == 0  # type: ignore[no-untyped-call]

    def unpin(self, address: int) -> None:
        """Unregister what `pin` registered."""
        torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingSize:
    """The bytes of each tensor, in the order in which they are copied, and whether the memory is pinned."""

    sizes: tuple[int, ...]
    is_pinned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where tensors go: `places` has each one's block and first byte; `added` is the size of one more block, or 0."""

    places: tuple[tuple[int, int], ...]
    added: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Contiguous copies in main memory, by the caller's key; valid only after `wait`."""

    tensors: Mapping[Key, torch.Tensor]
    events: tuple[torch.cuda.Event, ...]

    def wait(self) -> None:
        """Wait until the device has copied; any thread may call this."""
        for event in self.events:
            event.synchronize()


class Staging:
    """The staging memory. It holds one copy at a time: wait for its use to end before copying again."""

    def __init__(self, pages: Pages | None = None) -> None:
        self._pages = pages or CudaPages()
        self._blocks: list[torch.Tensor] = []
        self._is_pinned = False
        self._pinned: list[int] = []

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The address and the bytes of each block."""
        return [(block.data_ptr(), block.numel()) for block in self._blocks]

    def has_room(self, need: StagingSize) -> bool:
        """Whether such a copy needs no more memory."""
        return not self._plan(need).added

    def reserve(self, need: StagingSize) -> None:
        """Allocate the memory that such a copy needs in addition, and touch its pages."""
        if need.is_pinned and not self._is_pinned:
            self._blocks.clear()
            self._is_pinned = True
        if added := self._plan(need).added:
            self._blocks.append(_allocate(added))
            if self._is_pinned:
                self._pin(self._blocks[-1])

    def copy(self, tensors: Mapping[Key, torch.Tensor]) -> Copies:
        """Copy tensors from any device, ordered after the work that is already queued on their streams.

        They are laid out as in the file, from a page's start, largest element size first: so they can be written
        without another copy, and each tensor is aligned to its element size.
        """
        need = measure_staging_size(tensors.values())
        self.reserve(need)
        copies: dict[Key, torch.Tensor] = {}
        ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
        for (key, tensor), (block, begin), size in zip(ordered, self._plan(need).places, need.sizes, strict=True):
            copies[key] = self._blocks[block][begin : begin + size].view(tensor.dtype).view(tensor.shape)
            copies[key].copy_(tensor.detach(), non_blocking=True)
        devices = {tensor.device for tensor in tensors.values() if tensor.is_cuda}
        events = tuple(torch.cuda.current_stream(device).record_event() for device in devices)
        return Copies(tensors=copies, events=events)

    def close(self) -> None:
        """Unpin and free the memory; no copy may be in use."""
        for address in self._pinned:
            self._pages.unpin(address)
        self._pinned.clear()
        self._blocks.clear()

    def _plan(self, need: StagingSize) -> Layout:
        is_usable = self._is_pinned or not need.is_pinned
        return plan_layout(need.sizes, [block.numel() for block in self._blocks] if is_usable else [])

    def _pin(self, block: torch.Tensor) -> None:
        if self._pages.pin(block.data_ptr(), block.numel()):
            self._pinned.append(block.data_ptr())
        else:
            logger.warning("%d MB can't be pinned: each save waits for its copy", block.numel() // 1_000_000)


def plan_layout(sizes: Sequence[int], blocks: Sequence[int]) -> Layout:
    """Place tensors of these sizes one after another in blocks of these sizes; what doesn't fit gets a block. Pure.

    A new block has some headroom, so that a slightly larger state needs no other one.
    """
    places, held, block, begin, added = list[tuple[int, int]](), list(blocks), 0, 0, 0
    for number, size in enumerate(sizes):
        while block < len(held) and begin + size > held[block]:
            block, begin = block + 1, 0
        if block == len(held):
            added = _add_headroom(sum(sizes[number:]), whole=sum(sizes))
            held.append(added)
        places.append((block, begin))
        begin += size
    return Layout(places=tuple(places), added=added)


def measure_staging_size(tensors: Iterable[torch.Tensor]) -> StagingSize:
    """List the bytes that copies of these tensors take, largest element size first."""
    ordered = sorted(tensors, key=lambda tensor: -tensor.element_size())
    return StagingSize(
        sizes=tuple(tensor.numel() * tensor.element_size() for tensor in ordered),
        is_pinned=any(tensor.is_cuda for tensor in ordered),
    )


def _add_headroom(needed: int, *, whole: int) -> int:
    size = needed + max(_LEAST_HEADROOM_BYTES, int(whole * _HEADROOM))
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def _allocate(size: int) -> torch.Tensor:
    """Allocate whole pages, and touch them."""
    memory = torch.empty(size + PAGE_BYTES, dtype=torch.uint8)
    # NumPy's fill uses one thread, and releases the GIL.
    memory.numpy()[::PAGE_BYTES].fill(0)
    start = -memory.data_ptr() % PAGE_BYTES
    return memory[start : start + size]
