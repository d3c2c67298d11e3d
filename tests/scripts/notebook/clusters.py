# %% [markdown]
# Where are the shops? Five of them, from where their customers live. Writes everything beside itself.

# %%
import json
import os
import pickle
import random
import time
from pathlib import Path

from town import customers, distance

STEPS = int(os.environ.get("STEPS", "200"))
PAUSE = float(os.environ.get("PAUSE", "0"))

# %% Start, or go on where the kernel was interrupted.
if Path("shops.pkl").exists():
    done, shops, losses, dice = pickle.loads(Path("shops.pkl").read_bytes())
    print("welcome back, after step", done)
else:
    random.seed(3)
    done, shops, losses = 0, [(random.random(), random.random()) for _ in range(5)], []
    dice = random.getstate()
random.setstate(dice)

# %% Each step moves the shops a little towards the customers that are nearest.
while done < STEPS:
    crowd = random.sample(customers, 50)
    loss = 0.0
    for home in crowd:
        nearest = min(range(5), key=lambda shop: distance(shops[shop], home))
        x, y = shops[nearest]
        loss += distance(shops[nearest], home) / len(crowd)
        shops[nearest] = (x + 0.02 * (home[0] - x), y + 0.02 * (home[1] - y))
    time.sleep(PAUSE)
    done += 1
    losses.append(loss)
    Path("shops.tmp").write_bytes(pickle.dumps((done, shops, losses, random.getstate())))
    Path("shops.tmp").replace("shops.pkl")
    print("step", done, "mean distance", round(loss, 4))

# %% A picture, and the numbers.
circles = "".join(f'<circle cx="{x:.4f}" cy="{y:.4f}" r="0.01"/>' for x, y in shops)
Path("shops.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1">{circles}</svg>')
Path("summary.json").write_text(json.dumps({"losses": losses, "weights": shops}))
