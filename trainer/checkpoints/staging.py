"""Host memory that a state is copied to, so that training goes on while a thread writes the copy.

The memory is kept and its pages touched beforehand: the first touch of 500 MB takes longer than ten copies into it.
From a GPU the copy goes to page-locked memory and is queued on the device's stream, ahead of the next step's
kernels: the loop doesn't wait for it, and the next step cannot overtake it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How much memory a copy takes, and of which kind."""

    bytes: int
    is_pinned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Contiguous copies in main memory, by the name that the caller gave; right only after `wait`."""

    tensors: Mapping[int, torch.Tensor]
    events: tuple[torch.cuda.Event, ...]

    def wait(self) -> None:
        """Wait until the device has copied; any thread may."""
        for event in self.events:
            event.synchronize()


class Staging:
    """The memory. One copy is in it at a time: its user waits before it copies again."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)

    def reserve(self, need: Need) -> None:
        """Get the memory and touch it; what there is already is kept where it is enough."""
        if self._memory.numel() >= need.bytes and (self._memory.is_pinned() or not need.is_pinned):
            return
        self._memory = torch.empty(0, dtype=torch.uint8)  # the old block goes before the new one comes
        memory = torch.empty(need.bytes + PAGE_BYTES, dtype=torch.uint8, pin_memory=need.is_pinned)
        # NumPy's fill is one thread, and lets Python's others run.
        memory.numpy()[::PAGE_BYTES].fill(0)
        start = -memory.data_ptr() % PAGE_BYTES
        self._memory = memory[start : start + need.bytes]

    def copy(self, tensors: Mapping[int, torch.Tensor]) -> Copies:
        """Copy tensors, from wherever they are, as they are now in their streams' order.

        They lie as in a file, one after another from a page's start, the largest elements first: it is then written
        without being copied once more, and each tensor lies at a multiple of its element's size.
        """
        self.reserve(measure_need(tensors.values()))
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


def measure_need(tensors: Iterable[torch.Tensor]) -> Need:
    """Add up what copies of these tensors take."""
    sizes = [(tensor.numel() * tensor.element_size(), tensor.is_cuda) for tensor in tensors]
    return Need(bytes=sum(size for size, _ in sizes), is_pinned=any(is_cuda for _, is_cuda in sizes))
