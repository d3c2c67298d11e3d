"""Tells points inside a circle from those outside. Checkpoints are folders of `output_dir`; old ones are removed."""

import argparse
import json
import shutil
import time
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", type=Path, required=True)
parser.add_argument("--max_steps", type=int, default=200)
parser.add_argument("--save_steps", type=int, default=10)
parser.add_argument("--save_total_limit", type=int, default=2)
parser.add_argument("--resume_from_checkpoint", type=Path)
parser.add_argument("--step_seconds", type=float, default=0)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(42)
points = torch.rand(512, 2) * 2 - 1
labels = (points.norm(dim=1) < 0.8).long()
model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
momenta = [torch.zeros_like(weight) for weight in model.parameters()]
state: dict = {"global_step": 0, "max_steps": args.max_steps, "log_history": []}


def save(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    torch.save(momenta, folder / "optimizer.pt")
    torch.save(torch.get_rng_state(), folder / "rng_state.pth")
    (folder / "trainer_state.json").write_text(json.dumps(state))
    saved = sorted(args.output_dir.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    for old in saved[: -args.save_total_limit]:
        shutil.rmtree(old)


if args.resume_from_checkpoint:
    folder = args.resume_from_checkpoint
    model.load_state_dict(torch.load(folder / "pytorch_model.bin"))
    momenta = torch.load(folder / "optimizer.pt")
    torch.set_rng_state(torch.load(folder / "rng_state.pth"))
    state = json.loads((folder / "trainer_state.json").read_text())
    print(f"Continuing training from checkpoint, will skip to step {state['global_step']}")
events = args.output_dir / "runs" / "events.jsonl"
events.parent.mkdir(parents=True, exist_ok=True)
while state["global_step"] < args.max_steps:
    batch = torch.randint(len(points), (32,))
    loss = nn.functional.cross_entropy(model(points[batch]), labels[batch])
    model.zero_grad()
    loss.backward()
    # By hand: torch.optim would load torch's compiler, a second of CPU time at each start.
    with torch.no_grad():
        for weight, momentum in zip(model.parameters(), momenta, strict=True):
            momentum.mul_(0.9).add_(weight.grad)
            weight.sub_(0.1 * momentum)
    time.sleep(args.step_seconds)
    state["global_step"] += 1
    state["log_history"].append({"step": state["global_step"], "loss": loss.item()})
    print(state["log_history"][-1])
    with events.open("a") as log:
        log.write(json.dumps(state["log_history"][-1]) + "\n")
    if state["global_step"] % args.save_steps == 0:
        save(args.output_dir / f"checkpoint-{state['global_step']}")
weights = sum(weight.double().sum().item() for weight in model.parameters())
summary = {"losses": [entry["loss"] for entry in state["log_history"]], "weights": weights}
(args.output_dir / "train_results.json").write_text(json.dumps(summary))
