"""A user's training: it counts steps, saves each in `ckpt`, and saves once more when it is asked to stop.

It imports nothing of kedge's. What it was started with is in started-ATTEMPT-NODE.json; each SIGTERM is a line in
stops.log.
"""

import argparse
import json
import os
import pathlib
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10_000)
parser.add_argument("--resume", type=pathlib.Path)
args = parser.parse_args()
results, saves = pathlib.Path("results"), pathlib.Path("ckpt")
rank = os.environ["KEDGE_NODE_RANK"]
stops: list[float] = []


def on_stop(_number: int, _frame: object) -> None:
    stops.append(time.time())
    with (results / "stops.log").open("a") as log:
        log.write(f"{rank} {stops[-1]}\n")


def save(step: int) -> None:
    aside = saves / f"step-{rank}.tmp"
    aside.write_text(str(step))
    aside.rename(saves / f"step-{step:06}.txt")


signal.signal(signal.SIGTERM, on_stop)
step = int(args.resume.read_text()) if args.resume else 0
number = len(list(results.glob(f"started-*-{rank}.json"))) + 1
here = pathlib.Path.cwd()
files = sorted(path.name for path in here.iterdir())
told = {"from": step, "argv": sys.argv[1:], "cwd": str(here), "files": files, "env": dict(os.environ)}
(results / f"started-{number}-{rank}.json").write_text(json.dumps(told))
while step < args.steps and not stops:
    time.sleep(0.1)
    step += 1
    save(step)
if stops:
    # Long enough for a second signal to be noticed, which would be one too many.
    time.sleep(1)
    save(step + 1)
    print("saved before the end", flush=True)
