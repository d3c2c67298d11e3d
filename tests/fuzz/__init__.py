"""Fuzzing: every surface where bytes from outside enter kedge, each a function of bytes.

targets/      the functions, and what must hold whatever the bytes are
forms.py      the formats of inputs (JSON, an archive, a safetensors file), so that a mutation stays close to them
mutating.py   seeded mutations: of the structure if the input has one, else of its bytes
running.py    tries inputs on a target, and keeps its findings
corpus/       the first inputs, a folder for each target: attacks, and a fuzzer's findings
test_fuzz.py  the corpus and some seeded mutations of it, within `make test`
__main__.py   longer: `python -m tests.fuzz TARGET --seconds 600`, guided by coverage where atheris is installed
RESULTS.md    the results of the long runs
"""
