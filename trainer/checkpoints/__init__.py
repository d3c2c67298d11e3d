"""Checkpoints: staged in memory, written by a thread, verified when read; no code runs from a file.

saver       what the loop calls: stages a state, hands it to the writer thread, reports its errors
staging     the host memory that a state is copied to
store       one run's folder: names, pruning, the best by a metric
shards      a sharded checkpoint: one file per process, and an index
peers       messages between the processes that write a sharded checkpoint
loading     loads the newest intact checkpoint, or the best: from one file, or from any number of shards
document    a state as one safetensors file: tensors, the rest as JSON, checksums
header      the header of such a file
tree        splits a state into JSON and tensors, and joins them again
trainer/run/checkpoint_interval  how often: Young's and Daly's formulas
pickled     reads files of torch.save without running code in them
weights     matches a state dict to a model, whatever wrappers it was saved under
remap       `python -m trainer remap`
"""
