"""Out-of-memory errors: how to recognise one, and the smaller micro-batch that the next start uses."""

import json
from pathlib import Path

import torch

from trainer.base.files import write_atomically

# What a RuntimeError says if memory ran out elsewhere than in torch's own device allocator. Of these, NCCL's and the
# driver's come as torch.distributed.DistBackendError and torch.AcceleratorError, both RuntimeErrors.
_OUT_OF_MEMORY = (
    "can't allocate memory",  # the CPU's allocator
    "could not create a memory object",  # oneDNN
    "std::bad_alloc",
    "CUDA out of memory",
    "HIP out of memory",
    "CUDA error: out of memory",  # the driver: pinned memory, a kernel's local memory, another library's allocation
    "HIP error: out of memory",
    "CUDA driver error: out of memory",  # expandable segments
    "HIP driver error: out of memory",
    "hipErrorOutOfMemory",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUFFT_ALLOC_FAILED",
    "HIPBLAS_STATUS_ALLOC_FAILED",
    "rocblas_status_memory_error",
    "CUDNN_STATUS_ALLOC_FAILED",
    # cuDNN's search tries one algorithm after another, and torch swallows that each ran out of memory.
    "Unable to find a valid cuDNN algorithm to run convolution",
    "was unable to find an engine to execute this computation",
    "miopenStatusAllocFailed",
    "Failed to allocate memory for workspace",  # MIOpen
    "failure 2 'out of memory'",  # NCCL: Cuda failure, HIP failure
    "failure 'out of memory'",  # the same of an older NCCL
)


def is_out_of_memory(err: BaseException) -> bool:
    """Tell whether an error means that the device or the machine has no memory left."""
    if isinstance(err, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(err, RuntimeError) and any(text in str(err) for text in _OUT_OF_MEMORY)


RESTART_FILE = "micro-batch.json"


class MicroBatchFile:
    """A file with the micro-batch for the next start. A process that ran out of memory and can't continue writes it.

    `asked` is the user's setting when it was written: if the user has changed the setting since, the file is ignored.
    """

    def __init__(self, path: Path, *, asked: int, per_device: int) -> None:
        self._path = path
        self._asked = {"asked": asked, "per_device": per_device}

    def write(self, micro_batch: int) -> None:
        """Write a micro-batch durably."""
        text = json.dumps({**self._asked, "micro_batch": micro_batch}) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, lambda stream: stream.write(text.encode()))

    def read(self) -> int | None:
        """Return the micro-batch that was written for this setting; None if there is none."""
        try:
            content = json.loads(self._path.read_text())
            if {**content, **self._asked} != content:
                return None
            return int(content["micro_batch"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
