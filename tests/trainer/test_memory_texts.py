"""Which errors mean that memory ran out: the texts are those that torch and the libraries below it print."""

import pytest
import torch

from trainer.base.memory import is_out_of_memory

OUT_OF_MEMORY = [
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1 GiB is free.",
    "HIP out of memory. Tried to allocate 124.00 MiB. GPU 0 has a total capacity of 19.94 GiB",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.",
    "HIP error: out of memory\nHIP kernel errors might be asynchronously reported at some other API call.",
    "CUDA driver error: out of memory",
    "HIP error: hipErrorOutOfMemory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "Unable to find a valid cuDNN algorithm to run convolution",
    "GET was unable to find an engine to execute this computation",
    "FIND was unable to find an engine to execute this computation",
    "miopenStatusAllocFailed",
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error "
    "(run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
    "Cuda failure 2 'out of memory'",
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "8589934592 bytes. Error code 12 (Cannot allocate memory)",
    "could not create a memory object",
    "std::bad_alloc",
]
ANOTHER_CAUSE = [
    "CUDA error: an illegal memory access was encountered",
    "HIP error: an illegal memory access was encountered",
    "CUDA error: device-side assert triggered",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m, n, k, &alpha, a, lda)`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "miopenStatusUnknownError",
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error "
    "(run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
    "Cuda failure 1 'invalid argument'",
    "index 10 is out of bounds for dimension 0 with size 10",
    "mat1 and mat2 shapes cannot be multiplied (8x7 and 6x8)",
]


@pytest.mark.parametrize("text", OUT_OF_MEMORY)
def test_lack_of_memory_is_recognised_by_its_text(text: str) -> None:
    """Whatever library reports it, as a RuntimeError or one of torch's subclasses of it."""
    kinds: list[type[Exception]] = [RuntimeError, *_torch_errors()]
    assert all(is_out_of_memory(kind(text)) for kind in kinds)


@pytest.mark.parametrize("text", ANOTHER_CAUSE)
def test_another_error_of_the_same_libraries_is_not_taken_for_it(text: str) -> None:
    """Halving the batch would only hide a bug."""
    kinds: list[type[Exception]] = [RuntimeError, *_torch_errors()]
    assert not any(is_out_of_memory(kind(text)) for kind in kinds)


def test_errors_of_other_types_are_taken_by_their_type() -> None:
    """Python's own and torch's have any text; a text alone proves nothing about other types."""
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("anything"))
    assert not is_out_of_memory(ValueError("CUDA out of memory"))


def _torch_errors() -> list[type[Exception]]:
    """List the types that torch raises for a device and for collectives, where it has them."""
    names = [(torch, "AcceleratorError"), (torch.distributed, "DistBackendError")]
    return [getattr(module, name) for module, name in names if hasattr(module, name)]
