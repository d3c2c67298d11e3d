"""Fuzzing: every surface where bytes from outside enter kedge, each a function of bytes.

targets/      the functions, and what must hold whatever the bytes are
forms.py      what the bytes mean (JSON, an archive, a safetensors file), so that a mutation stays near the format
mutating.py   one mutation after another, by a seed: structure where there is one, bytes where there is none
running.py    tries inputs on a target, and keeps what it finds
corpus/       inputs to begin with, a folder for each target: attacks, and what a fuzzer has found
test_fuzz.py  the corpus and some seeded mutations of it, within `make test`
__main__.py   longer: `python -m tests.fuzz TARGET --seconds 600`, guided by coverage where atheris is installed
RESULTS.md    what the long runs have shown
"""
