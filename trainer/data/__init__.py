"""Samples on their way to the device: sources, order, random generators, batches, loading."""
