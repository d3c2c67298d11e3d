"""A user's script, as pcdiff's: it learns to take noise out of point clouds, on all machines that torchrun names.

Rank 0 writes a checkpoint at intervals, and a loss for each step; after a restart it loads, and tells the others. The
noise follows from the step and the rank, so the losses are the same however often the run was interrupted.
"""

import json
import os
import pathlib
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

STEPS, SAVE_EVERY = int(os.environ["STEPS"]), int(os.environ["SAVE_EVERY"])
HOLDS = [int(step) for step in os.environ.get("HOLDS", "").split()]

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
checkpoints, results = pathlib.Path("checkpoints"), pathlib.Path("results")
for folder in (checkpoints, results):
    folder.mkdir(exist_ok=True)
# [batch, points, 3]
clouds = torch.stack([torch.from_numpy(np.load(path)) for path in sorted(pathlib.Path("clouds").glob("*.npy"))])

torch.manual_seed(7)
model = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
saved = sorted(checkpoints.glob("step-*.pt"))
state = torch.load(saved[-1], weights_only=True) if saved and rank == 0 else None
said = [state]
dist.broadcast_object_list(said, src=0)
done = 0
if said[0] is not None:
    done = said[0]["step"]
    model.load_state_dict(said[0]["model"])
    optimizer.load_state_dict(said[0]["optimizer"])
if rank == 0:
    print(f"{size} ranks go on from step {done}" if done else f"{size} ranks begin", flush=True)
trained = nn.parallel.DistributedDataParallel(model)

for step in range(done + 1, STEPS + 1):
    noise = torch.Generator().manual_seed(1000 * step + rank)
    batch = clouds[(step * size + rank) % len(clouds)][None]
    added = torch.randn(batch.shape, generator=noise)
    loss = (trained(batch + added) - added).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        with (results / "metrics.jsonl").open("a") as metrics:
            metrics.write(json.dumps({"step": step, "loss": mean.item() / size}) + "\n")
        if step % SAVE_EVERY == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, "checkpoint.part")
            pathlib.Path("checkpoint.part").rename(checkpoints / f"step-{step:04}.pt")
    # Here it waits for its machine, or another one, to be lost.
    while step in HOLDS and done < step - step % SAVE_EVERY:
        time.sleep(0.2)

# torch 2.13 may hang at Python's own exit: gloo's thread, which is joined there, may wait for Python's lock.
sys.stdout.flush()
os._exit(0)
