# kedge. `make demo`, `make install` and `make test` start from python >= 3.11, git and make alone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
DOCS_VENV := $(VENV)/docs
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.ready-demo
DOCS_READY := $(DOCS_VENV)/.ready
# Tests of machines wait most of the time: six workers keep two cores busy.
WORKERS := 6
# The tests of a file share its fixtures; tests/conftest.py says which files come first.
BY_FILE := --dist loadfile --no-loadscope-reorder

.PHONY: help demo install uninstall test check nightly anew audit fuzz mutants mutants-trainer lint types contracts collect quick unit docs cloud bench gpu lock setup room room-demo room-docs system programs tools clean

help: ## Say what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: room-demo system $(DEMO_READY) ## Train a small ResNet on this computer, from the job file to the results
	$(BIN)/kedge launch --job digits --price 1.99 --yes
	@echo
	@echo "What next:"
	@echo "  make install           the command kedge, for your user"
	@echo "  README.md, step 3      your own script: here, then on a rented GPU"
	@echo "  make uninstall clean   remove everything again"

install: system ## Install the command kedge for your user, or upgrade it
	@bash infra/setup/command.sh install

uninstall: ## Remove the command kedge; runs, results and their state stay
	@bash infra/setup/command.sh uninstall

# mypy keeps one core busy; the other checks run on the other.
test: tools ## Lint, types, import contracts and all tests
	+$(MAKE) --no-print-directory --jobs=2 --output-sync types lint contracts collect
	+$(MAKE) --no-print-directory unit

check: programs ## In a minute: lint (bandit's rules too), types, import contracts, and the tests that start no machine
	+$(MAKE) --no-print-directory --jobs=2 --output-sync types quick lint contracts

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/deptry .

types:
	$(BIN)/mypy

contracts:
	$(BIN)/lint-imports

# After it, Python's bytecode of all tests is there: workers that start together would each compile them.
collect:
	mkdir -p build && $(BIN)/pytest --collect-only -qq > build/collect.log || { tail -c 3000 build/collect.log; exit 1; }

quick:
	$(BIN)/pytest -q -n 2 tests/unit tests/plans tests/golden

unit:
	$(BIN)/pytest -n $(WORKERS) $(BY_FILE)

# In a separate environment: the tests don't need the generator.
docs: room-docs $(DOCS_READY) ## Build the site in build/docs/site; a link or an anchor that leads nowhere fails it
	$(DOCS_VENV)/bin/python -m docs.site

nightly: setup audit fuzz mutants docs anew ## What is too slow, or too dependent on others, for every change

# Known vulnerabilities in what is locked. It asks the public advisory database, and installs nothing.
audit:
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r locks/tests.txt

# A minute for each surface that takes bytes from outside; ARGS='--seconds 600 reports' for longer.
fuzz: setup ## Look for inputs that break a promise (tests/fuzz)
	$(BIN)/python -m tests.fuzz $(ARGS)

# Changes orchestrator/core in some 2,300 ways, one at a time, and counts the changes that a test notices: 15 minutes.
# Always from scratch, because mutmut doesn't repeat a change for a new test. tests/README.md has the score.
mutants: setup ## Ask whether tests notice when core is wrong; ARGS=--write keeps the table
	rm -rf mutants && mkdir -p build
	$(BIN)/mutmut run --max-children 2 > build/mutants.log || { tail -c 3000 build/mutants.log; exit 1; }
	$(BIN)/python -m tests.mutation_score core $(ARGS)

TRAINER_LOG := $(abspath build/trainer-mutants.log)
TRAINER_MUTMUT := OMP_NUM_THREADS=1 $(abspath $(BIN))/mutmut run --max-children 2

# In a copy, because mutmut has one configuration for each checkout. The first call makes all changes and tries one; the
# second tries a sample of them, because all take hours.
mutants-trainer: setup ## The same for the trainer's steps, checkpoints and process group: a sample, or ARGS=--all
	rm -rf build/trainer-mutants && mkdir -p build/trainer-mutants
	git ls-files -z | xargs -0 cp --parents -t build/trainer-mutants
	sed -i '/^\[tool.mutmut\]/,/^$$/d' build/trainer-mutants/pyproject.toml
	cat tests/mutants_trainer.toml >> build/trainer-mutants/pyproject.toml
	cd build/trainer-mutants && $(TRAINER_MUTMUT) trainer.group.rendezvous.x_open_group_store__mutmut_1 > $(TRAINER_LOG) || { tail -c 3000 $(TRAINER_LOG); exit 1; }
	names=$$($(BIN)/python -m tests.mutation_score trainer --names $(ARGS)) && \
	cd build/trainer-mutants && $(TRAINER_MUTMUT) $$names >> $(TRAINER_LOG) || { tail -c 3000 $(TRAINER_LOG); exit 1; }
	$(BIN)/python -m tests.mutation_score trainer $(ARGS)

# Unlike `make test`, which forks most programs from one with their imports done, skips the box's own tests if they have
# passed unchanged, and tries a seeded sample of the enumerated kills and faults (tests/support).
anew: tools ## All tests, without exceptions, and each program started as a new process
	KEDGE_TESTS_ALL=1 KEDGE_TESTS_START_ANEW=1 $(BIN)/pytest -n $(WORKERS) $(BY_FILE)

lock: setup ## Write locks/ anew; ARGS=--upgrade takes newer versions
	$(BIN)/python locks/write.py $(ARGS)

cloud: setup tools ## AWS in a box, or ARGS=--digitalocean, to play with by hand (root, Linux)
	$(BIN)/python -m tests.cloudbox $(ARGS)

bench: setup ## Measure against peers; prints the tables that are committed in benchmarks/
	for script in benchmarks/bench_*.py benchmarks/trainer/bench_*.py; do $(BIN)/python $$script; done

# Four minutes on one GPU. Without one the tests are skipped, and nothing is measured.
gpu: setup ## On a computer with a GPU: each pair of a step's features, and what the trainer costs there
	$(BIN)/pytest -q -n 4 tests/trainer/gpu
	$(BIN)/python -m benchmarks.trainer.gpu --write

setup: room system $(READY)

room:
	@[ -e $(READY) ] || bash infra/setup/room.sh $(VENV) tests

room-demo:
	@[ -e $(DEMO_READY) ] || bash infra/setup/room.sh $(VENV) trainer

room-docs:
	@[ -e $(DOCS_READY) ] || bash infra/setup/room.sh $(DOCS_VENV) docs

system:
	@bash infra/setup/system.sh

programs: setup
	@bash infra/setup/system.sh tests

tools: programs
	@$(BIN)/python -m tests.cloudbox.nspawn.needs

$(DEMO_READY): pyproject.toml constraints.txt locks/trainer.txt
	@bash infra/setup/python.sh $(VENV) trainer
	@touch $(DEMO_READY)

$(DOCS_READY): pyproject.toml constraints.txt locks/docs.txt
	@bash infra/setup/python.sh $(DOCS_VENV) docs
	@touch $(DOCS_READY)

$(READY): pyproject.toml constraints.txt locks/tests.txt
	@bash infra/setup/python.sh $(VENV) tests
	@touch $(READY) $(DEMO_READY)

clean: ## Remove what set-up made
	rm -rf $(VENV) dist build mutants *.egg-info
