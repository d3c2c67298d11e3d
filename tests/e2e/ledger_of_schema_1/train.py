"""Writes one checkpoint an epoch."""

import pathlib
import sys

print(" ".join(["arguments:", *sys.argv[1:]]), flush=True)
for folder in ("results", "ckpt"):
    pathlib.Path(folder).mkdir(exist_ok=True)
done = len(list(pathlib.Path("ckpt").glob("epoch-*.pt")))
for epoch in range(done, 2):
    pathlib.Path(f"ckpt/epoch-{epoch}.pt").write_text(str(epoch))
pathlib.Path("results/score.txt").write_text("1.0")
