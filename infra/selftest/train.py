"""A training that needs nothing but Python: it counts steps, and does what the run contract asks of a training.

Each step ends with a checkpoint. On SIGTERM it exits after the step; it answers a notice in status.json; and a new
start continues from the newest checkpoint.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS = 12
OUTPUT = Path(os.environ["KEDGE_OUTPUT_DIR"])
CHECKPOINTS = Path(os.environ["KEDGE_CHECKPOINT_DIR"])
NOTICE = Path(os.environ["KEDGE_NOTICE_FILE"])
PAUSE_SECONDS = float(os.environ["TRAINING_SECONDS"]) / STEPS

stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))


def write(path, content):
    """Write a file atomically."""
    aside = path.with_name(path.name + ".tmp")
    with aside.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def newest():
    """Return the content of the newest checkpoint."""
    files = sorted(CHECKPOINTS.glob("step-*.json"))
    return json.loads(files[-1].read_text()) if files else {"step": 0, "starts": 0, "noticed": False}


total = sum(int(line) for line in Path("numbers/numbers.txt").read_text().split())
if total != 500500:
    sys.exit(f"the data is damaged: it adds up to {total}")
OUTPUT.mkdir(parents=True, exist_ok=True)
CHECKPOINTS.mkdir(parents=True, exist_ok=True)
state = newest()
state["starts"] += 1
print(f"start {state['starts']}, after step {state['step']}", flush=True)
while state["step"] < STEPS and not stops:
    time.sleep(PAUSE_SECONDS)
    # The first start runs half of the steps and waits to be stopped; the second one waits for the notice before its
    # last step. The self-test may be slow.
    first_is_done = state["starts"] == 1 and state["step"] == STEPS // 2
    unnoticed = state["step"] == STEPS - 1 and not NOTICE.exists()
    if first_is_done or unnoticed:
        continue
    state["step"] += 1
    state["noticed"] = state["noticed"] or NOTICE.exists()
    with (OUTPUT / "steps.log").open("a") as log:
        log.write(f"{state['step']}\n")
    write(CHECKPOINTS / f"step-{state['step']:08d}.json", state)
    write(OUTPUT / "status.json", {**state, "steps": STEPS})
    print(f"step {state['step']} of {STEPS}", flush=True)
sys.exit(1 if stops else 0)
