"""Writes data/train.bin, which is too large for git where the stories are longer."""

import random
from pathlib import Path

random.seed(1)
words = ["the", "old", "tree", "sees", "no", "wind", "and", "sings"]
Path("data").mkdir(exist_ok=True)
Path("data/train.bin").write_bytes(" ".join(random.choices(words, k=20_000)).encode())
