"""Fits a small network to a wave. It begins anew, unless `--resume` names a checkpoint."""

import argparse
import json
import shutil
import time
from pathlib import Path

import torch
from torch import nn


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--save-dir", type=Path, default=Path("checkpoints"))
    parser.add_argument("--resume", type=Path, metavar="PATH", help="a checkpoint to go on from")
    parser.add_argument("--pause", type=float, default=0, metavar="SECONDS", help="makes each epoch last longer")
    return parser.parse_args()


def update(model: nn.Module, momenta: list[torch.Tensor]) -> None:
    # By hand: torch.optim would load torch's compiler, a second of CPU time at each start.
    with torch.no_grad():
        for weight, momentum in zip(model.parameters(), momenta, strict=True):
            momentum.mul_(0.9).add_(weight.grad)
            weight.sub_(0.05 * momentum)


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    inputs = torch.linspace(-3, 3, 128).unsqueeze(1)
    targets = torch.sin(inputs) + 0.1 * torch.randn_like(inputs)
    model = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))
    momenta = [torch.zeros_like(weight) for weight in model.parameters()]
    losses: list[float] = []
    best = float("inf")
    if args.resume:
        saved = torch.load(args.resume)
        model.load_state_dict(saved["model"])
        momenta = saved["momenta"]
        torch.set_rng_state(saved["rng"])
        losses, best = saved["losses"], saved["best"]
        print(f"=> loaded checkpoint '{args.resume}' (epoch {saved['epoch']})")

    args.save_dir.mkdir(exist_ok=True)
    for epoch in range(len(losses) + 1, args.epochs + 1):
        loss = 0.0
        for batch in torch.randperm(len(inputs)).split(64):
            error = nn.functional.mse_loss(model(inputs[batch]), targets[batch])
            model.zero_grad()
            error.backward()
            update(model, momenta)
            loss += error.item() * len(batch) / len(inputs)
        time.sleep(args.pause)
        losses.append(loss)
        state = {"epoch": epoch, "losses": losses, "best": min(best, loss), "rng": torch.get_rng_state()}
        state |= {"model": model.state_dict(), "momenta": momenta}
        torch.save(state, args.save_dir / "checkpoint.tmp")
        (args.save_dir / "checkpoint.tmp").replace(args.save_dir / "checkpoint.pth")
        if loss < best:
            best = loss
            shutil.copyfile(args.save_dir / "checkpoint.pth", args.save_dir / "best.pth")
        print(f"Epoch [{epoch}/{args.epochs}] loss {loss:.6f} (best {best:.6f})")
    weights = sum(weight.double().sum().item() for weight in model.parameters())
    Path("results").mkdir(exist_ok=True)
    Path("results/summary.json").write_text(json.dumps({"losses": losses, "weights": weights}))


if __name__ == "__main__":
    main()
