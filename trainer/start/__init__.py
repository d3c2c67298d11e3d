"""What a new run starts from: weights (`--init`), or a checkpoint whose training goes on (`--from`).

open      finds what a run starts from, before anything is changed
fingerprint  which settings may differ from a checkpoint's, and what is said then
fit       which weights fit a model, and what doesn't
hub       downloads weights from the Hugging Face Hub
weights   `--init`: reads weights on one process, loads them on all
moments   fits an optimizer's state to the optimizer of this run
position  an epoch and the steps in it, in batches of another size
carried   `--from` with a checkpoint of ours: what is kept and what is new
foreign   `--from` with another trainer's checkpoint
"""
