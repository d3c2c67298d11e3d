"""Checkpoints: a state is copied aside, written by a thread, verified when it is read; no code runs from a file.

saver       what the loop calls: stage, hand to the writer, report its errors
staging     the host memory that a state is copied to
store       one run's folder: names, pruning, the best by a metric
shards      a checkpoint in parts, one from each process, and its index
peers       how the processes that write one together tell one another
loading     the newest that is sound, and the best: from one file, or from any number of shards
document    a state as one safetensors file: tensors, the rest as JSON, checksums
header      what such a file says about itself
tree        a state with its tensors taken out, and put back
intervals   how often: Young's and Daly's formulas
pickled     files of torch.save, read without running what is in them
weights     a state dict under whatever wrappers it was saved
remap       `python -m trainer remap`
"""
