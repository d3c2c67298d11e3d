"""Undoes the side effects of a failed step, which updated no weight: running statistics and random states."""

import torch
from torch import nn

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class StepRollback:
    """Records the state before a step, to restore it, without a device sync.

    Both are a few operations, however many buffers the model has: buffers are handled as integers of the same size, all
    of a size in one operation.
    """

    def __init__(self, model: nn.Module, device: torch.device, *, reads_host: bool | None = None) -> None:
        """Record the state of a model.

        Args:
            model: its buffers are restored.
            device: its generator is restored, besides the CPU's.
            reads_host: whether `restore_buffers_if_skipped` may wait for the device; None: on a CPU, which never waits.
        """
        self._device = device
        self._reads_host = device.type == "cpu" if reads_host is None else reads_host
        self._buffers: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        self._places = [
            (module._buffers, name, buffer)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        for buffer in model.buffers():
            live = _as_integers(buffer)
            of_size = self._buffers.setdefault(live.dtype, ([], []))
            of_size[0].append(live)
            of_size[1].append(live.clone())
        self.record()

    @torch.no_grad()
    def record(self) -> None:
        """Record the state before a step."""
        self._take_in_assigned()
        for live, recorded in self._buffers.values():
            torch._foreach_copy_(recorded, live)
        self._cpu_state = torch.get_rng_state()
        if self._device.type == "cuda":
            generator = _device_generator(self._device)
            # The generator's whole state, as numbers that the host has.
            self._device_state = (generator.initial_seed(), generator.get_offset())

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the recorded state."""
        self._take_in_assigned()
        self._restore_buffers()
        torch.set_rng_state(self._cpu_state)
        if self._device.type == "cuda":
            seed, offset = self._device_state
            _device_generator(self._device).manual_seed(seed).set_offset(offset)

    @torch.no_grad()
    def restore_buffers_if_skipped(self, skipped: torch.Tensor) -> None:
        """Restore the buffers if `skipped`, a scalar, is not 0: they may have non-finite values like the gradient."""
        if not self._buffers:
            return
        self._take_in_assigned()
        if self._reads_host:
            if skipped.item():
                self._restore_buffers()
            return
        is_kept = skipped.to(self._device, non_blocking=True) == 0
        for dtype, (live, recorded) in self._buffers.items():
            # recorded + (live - recorded) * (0 or 1). Exact, because integers wrap around; NaN * 0 would be NaN.
            torch._foreach_sub_(live, recorded)
            torch._foreach_mul_(live, is_kept.to(dtype))
            torch._foreach_add_(live, recorded)

    def _take_in_assigned(self) -> None:
        """Copy tensors that the model has assigned to its buffers (`self.b = self.b + 1`) into the buffers' own."""
        for holder, name, own in self._places:
            new = holder.get(name)
            if new is not own and new is not None and new.shape == own.shape and new.dtype == own.dtype:
                holder[name] = own.copy_(new)

    def _restore_buffers(self) -> None:
        for live, recorded in self._buffers.values():
            torch._foreach_copy_(live, recorded)


def _as_integers(buffer: torch.Tensor) -> torch.Tensor:
    """View a tensor's bits as integers."""
    plain = torch.view_as_real(buffer) if buffer.is_complex() else buffer
    return plain.detach().view(_INTEGERS[plain.element_size()])


def _device_generator(device: torch.device) -> torch.Generator:
    return torch.cuda.default_generators[device.index or 0]
