"""The trainer: runs recipes on CUDA, ROCm and CPU, in one process or under torchrun. Never imports the orchestrator."""
