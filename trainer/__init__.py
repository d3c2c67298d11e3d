"""What trains: recipes on CUDA, ROCm and CPU, alone or under torchrun. Never imports the orchestrator."""
