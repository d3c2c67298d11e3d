"""One run: assembly, resume, training loop, validation, stop, and outputs."""
