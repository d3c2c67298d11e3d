"""kedge: puts a training run on a rented GPU, keeps it alive, and leaves nothing billing."""

__version__ = "0.1.0"
