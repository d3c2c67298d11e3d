"""A command whose output attacks the reader of its log, and that shows a progress bar as tqdm does."""

import json
import os
import sys
from pathlib import Path

ATTACKS = (
    "a\x1b[2Jb\x1b]0;title\x07c",
    "split \x1b[",
    "2J over lines",
    "a window \x1b]0;ti",
    "tle\x07 split",
    "C1 \x9b2J and \x9d0;title\x9c",
    "a device \x1bP1$r0m\x1b\\ string",
    "back\x08\x08\x08\x08over",
    "photo\u202egnp.exe",
    "zero\u200bwidth\ufeff",
    "filler\u3164",
    "lines\u2028and\x85more\x0bor\x0cless",
    "\x1b[31mred\x1b[8mhidden\x1b[0m",
    "\x1b[>4;1mkeys",
)

sys.stdout.buffer.write("\n".join(ATTACKS).encode() + b"\n")
sys.stdout.buffer.write(b"raw \x9b2J \xff\n")
for done in range(4):
    sys.stdout.buffer.write(f"\r{done}/3 |{'#' * done:3}|".encode())
sys.stdout.buffer.write(b"\n")
sys.stdout.buffer.flush()
(Path(os.environ["KEDGE_CHECKPOINT_DIR"]) / "step-1\n! spoofed: all is well").write_text("1")
progress = {"epoch": 1, "metrics": {"\x1b[2Jloss\u202e": 0.5}}
(Path(os.environ["KEDGE_OUTPUT_DIR"]) / "status.json").write_text(json.dumps(progress))
