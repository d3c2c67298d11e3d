"""Host memory that a state is copied to, so that training goes on while a thread writes the copy.

The memory is reused, and its pages are touched in advance: the first touch of 500 MB takes longer than ten copies into
it. A copy from a GPU goes to pinned memory and is queued on the device's stream, ahead of the next step's kernels: the
loop doesn't wait for it, and the next step can't overtake it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingSize:
    """How much memory a copy takes, and whether it is pinned."""

    bytes: int
    is_pinned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Contiguous copies in main memory, by the caller's key; valid only after `wait`."""

    tensors: Mapping[int, torch.Tensor]
    events: tuple[torch.cuda.Event, ...]

    def wait(self) -> None:
        """Wait until the device has copied; any thread may call this."""
        for event in self.events:
            event.synchronize()


class Staging:
    """The staging memory. It holds one copy at a time: wait for its use to end before copying again."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)

    def reserve(self, need: StagingSize) -> None:
        """Allocate the memory and touch its pages; a block that is large enough is kept."""
        if self._memory.numel() >= need.bytes and (self._memory.is_pinned() or not need.is_pinned):
            return
        self._memory = torch.empty(0, dtype=torch.uint8)  # free the old block before allocating the new one
        memory = torch.empty(need.bytes + PAGE_BYTES, dtype=torch.uint8, pin_memory=need.is_pinned)
        # NumPy's fill uses one thread, and releases the GIL.
        memory.numpy()[::PAGE_BYTES].fill(0)
        start = -memory.data_ptr() % PAGE_BYTES
        self._memory = memory[start : start + need.bytes]

    def copy(self, tensors: Mapping[int, torch.Tensor]) -> Copies:
        """Copy tensors from any device, ordered after the work that is already queued on their streams.

        They are laid out as in the file, from a page's start, largest element size first: so they can be written
        without another copy, and each tensor is aligned to its element size.
        """
        self.reserve(measure_staging_size(tensors.values()))
        copies: dict[int, torch.Tensor] = {}
        begin = 0
        for key, tensor in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
            end = begin + tensor.numel() * tensor.element_size()
            copies[key] = self._memory[begin:end].view(tensor.dtype).view(tensor.shape)
            copies[key].copy_(tensor.detach(), non_blocking=True)
            begin = end
        devices = {tensor.device for tensor in tensors.values() if tensor.is_cuda}
        events = tuple(torch.cuda.current_stream(device).record_event() for device in devices)
        return Copies(tensors=copies, events=events)


def measure_staging_size(tensors: Iterable[torch.Tensor]) -> StagingSize:
    """Add up the memory that copies of these tensors take."""
    sizes = [(tensor.numel() * tensor.element_size(), tensor.is_cuda) for tensor in tensors]
    return StagingSize(bytes=sum(size for size, _ in sizes), is_pinned=any(is_cuda for _, is_cuda in sizes))
