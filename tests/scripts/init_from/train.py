"""Trains a table of which character follows which. `--key=value` sets any of the variables below."""

import json
import time
from pathlib import Path

import torch
from torch.nn import functional

out_dir = "out"
data_dir = "data"
init_from = "scratch"  # or resume
max_iters = 200
eval_interval = 10
batch_size = 32
learning_rate = 0.5
pause = 0.0
exec(Path("configurator.py").read_text())

stories = torch.tensor(list(Path(data_dir, "train.bin").read_bytes())) % 32  # letters, as their places in the alphabet
torch.set_num_threads(1)
table = torch.zeros(32, 32, requires_grad=True)
momentum = torch.zeros_like(table)
iter_num, losses = 0, []
if init_from == "resume":
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(Path(out_dir, "ckpt.pt"))
    with torch.no_grad():
        table.copy_(checkpoint["model"])
    momentum = checkpoint["momentum"]
    iter_num, losses = checkpoint["iter_num"], checkpoint["losses"]
    print(f"going on after iter {iter_num}")
else:
    print("Initializing a new model from scratch")

while iter_num < max_iters:
    # Which characters a step sees depends on its number alone: whoever resumes sees the same.
    torch.manual_seed(1337 + iter_num)
    places = torch.randint(len(stories) - 1, (batch_size,))
    loss = functional.cross_entropy(table[stories[places]], stories[places + 1])
    table.grad = None
    loss.backward()
    # By hand: torch.optim would load torch's compiler, a second of CPU time at each start.
    with torch.no_grad():
        momentum.mul_(0.9).add_(table.grad)
        table -= learning_rate * momentum
    time.sleep(pause)
    iter_num += 1
    losses.append(loss.item())
    print(f"iter {iter_num}: loss {losses[-1]:.4f}")
    if iter_num % eval_interval == 0:
        checkpoint = {
            "model": table.detach(),
            "momentum": momentum,
            "iter_num": iter_num,
            "losses": losses,
        }
        Path(out_dir).mkdir(exist_ok=True)
        torch.save(checkpoint, Path(out_dir, "ckpt.pt"))
Path(out_dir, "summary.json").write_text(json.dumps({"losses": losses, "weights": table.double().sum().item()}))
