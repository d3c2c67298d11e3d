"""A training script in the style of nanoGPT: it starts from scratch unless told to resume, and has one checkpoint.

The checkpoint is written in place. The script imports nothing of kedge's, and uses none of its variables.
"""

import argparse
import pathlib
import pickle
import time

parser = argparse.ArgumentParser()
parser.add_argument("--out_dir", type=pathlib.Path, default="out")
parser.add_argument("--init_from", choices=["scratch", "resume"], default="scratch")
args = parser.parse_args()
args.out_dir.mkdir(exist_ok=True)
path = args.out_dir / "ckpt.pt"
iter_num = pickle.loads(path.read_bytes())["iter_num"] if args.init_from == "resume" else 0
# The first run is fast, so that the test needn't wait; later ones are so slow that the test sees their beginning.
pause = 0.05 if path.exists() else 0.002
print(f"training from iter {iter_num}", flush=True)
while True:
    iter_num += 1
    time.sleep(pause)
    if iter_num % 50 == 0:
        path.write_bytes(pickle.dumps({"model": bytes(1000), "iter_num": iter_num, "config": vars(args)}))
        print(f"saved iter {iter_num}", flush=True)
        time.sleep(0.5 if iter_num >= 650 else 0)
