"""A user's own training script: it imports nothing of kedge's, and knows nothing of its variables.

It counts steps, writes ckpt/step-N.txt at intervals, keeps the newest five, and resumes from the newest.
"""

import os
import pathlib
import sys
import time

steps, pause = int(os.environ.get("STEPS", "3")), float(os.environ.get("PAUSE", "0.05"))
save_every = int(os.environ.get("SAVE_EVERY", "1"))
checkpoints, results = pathlib.Path("ckpt"), pathlib.Path("results")
checkpoints.mkdir(exist_ok=True)
results.mkdir(exist_ok=True)
saved = sorted(checkpoints.glob("step-*.txt"))
done = int(saved[-1].read_text()) if saved else 0
print(f"going on from step {done}" if done else "a fresh start", flush=True)
for step in range(done + 1, steps + 1):
    time.sleep(pause)
    if step % save_every == 0:
        aside = checkpoints / "step.tmp"
        aside.write_text(str(step))
        aside.rename(checkpoints / f"step-{step:08}.txt")
        for old in sorted(checkpoints.glob("step-*.txt"))[:-5]:
            old.unlink()
    with (results / "steps.log").open("a") as log:
        log.write(f"{step} {os.environ.get('KEDGE_RUN_ID')}\n")
    print(f"step {step} of {steps}", flush=True)
    if os.environ.get("FAIL_AT") == str(step):
        sys.exit(7)
(results / "model.txt").write_text(f"trained for {steps} steps")
