"""The machine's GPUs without torch: detection, readiness, load and environment variables."""
