"""Samples on their way to the device: ready-made sources, order, random generators, batches, worker processes, loading.

What a source, a stream and a batch are to the trainer is in `trainer.base.sources`. Models, losses and steps are not here.
"""
