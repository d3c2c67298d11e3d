"""Samples on their way to the device: ready-made sources, order, random generators, batches, worker processes, loading.

`trainer.base.sources` says what a source, a stream and a batch are. Models, losses and steps are elsewhere.
"""
