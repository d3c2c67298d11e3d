"""Checkpoints: staged in memory, written by a thread, verified when read; no code runs from a file.

saver       what the loop calls: stages a state, hands it to the writer thread, reports its errors
staging     the host memory that a state is copied to
store       one run's folder: names, pruning, milestones, the best by a metric
shards      a sharded checkpoint: one file per process, and an index
peers       messages between the processes that write a sharded checkpoint
replicas    copies of shards on other nodes
nodes       which processes share a disk or a machine
loading     loads the newest intact checkpoint, or the best: from one file, or from any number of shards
document    a state as one safetensors file: tensors, the rest as JSON, checksums
header      the header of such a file
tree        splits a state into JSON and tensors, and joins them again
direct      writes past the page cache
trainer/run/checkpoint_interval  how often: Young's and Daly's formulas
pickled     reads files of torch.save without running code in them
weights     matches a state dict to a model, whatever wrappers it was saved under
remap       `python -m trainer remap`

Why not other packages' code (safetensors 0.8, torch 2.13; 500 MB, benchmarks/results/checkpoint.txt):

- safetensors.torch.save_file takes as long as torch.save until the file is durable, three times as long as `document`,
  because it writes through the page cache. It refuses channels-last tensors, tensors that share memory, and whatever
  isn't a tensor. `load_file` doesn't notice a flipped bit: the format has no checksums. Any version of it reads our
  files.
- torch.distributed.checkpoint (DCP) unpickles: its usual reader its metadata, its planner what isn't a tensor
  (default_planner.py, torch.load with weights_only=False). With HuggingFaceStorageWriter it writes safetensors files,
  and then can't hold what isn't a tensor, nor channels-last tensors, nor tensors that share memory. It has no checksums
  either, needs 950 MB more memory for these 500 MB, lets the loop wait for `async_save` two to eight times as long as
  `saver`, and plans through collectives. It reads shards of any number of processes, but from a disk that all share.
"""
