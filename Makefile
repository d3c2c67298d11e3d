# kedge. `make demo`, `make install` and `make test` start from python >= 3.11, git and make alone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.ready-demo

.PHONY: help demo install uninstall test check nightly audit fuzz lint types contracts dangers unit cloud bench lock setup room room-demo system tools clean

help: ## Say what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: room-demo system $(DEMO_READY) ## Train a small ResNet on this computer, from the job file to the results
	$(BIN)/kedge launch --job digits --price 1.99 --yes
	@echo
	@echo "What next:"
	@echo "  make install           the command kedge, for your user"
	@echo "  README.md, step 3      your own script: here, then on a rented GPU"
	@echo "  make uninstall clean   take it all away again"

install: system ## Install the command kedge for your user, or upgrade it
	@bash infra/setup/command.sh install

uninstall: ## Remove the command kedge; runs, results and their state stay
	@bash infra/setup/command.sh uninstall

test: tools check unit ## Lint, types, import contracts and all tests

check: setup lint types contracts dangers ## Lint (bandit's rules too), types, import contracts, and what turns data into code

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/deptry .

types:
	$(BIN)/mypy

contracts:
	$(BIN)/lint-imports

dangers:
	$(BIN)/pytest -q tests/golden/test_dangerous_calls.py

# Tests of machines wait for half of their time: three workers keep two cores at work.
unit:
	$(BIN)/pytest -n 3 --dist worksteal

nightly: setup audit fuzz ## What is too slow, or too dependent on others, for every change

# Known vulnerabilities in what is locked. It asks the public advisory database, and installs nothing.
audit:
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r locks/tests.txt

# A minute for each surface where bytes from outside come in; ARGS='--seconds 600 reports' for longer.
fuzz: setup ## Look for inputs that break a promise (tests/fuzz)
	$(BIN)/python -m tests.fuzz $(ARGS)

lock: setup ## Write locks/ anew; ARGS=--upgrade takes newer versions
	$(BIN)/python locks/write.py $(ARGS)

cloud: setup tools ## AWS in a box, or ARGS=--digitalocean, to play with by hand (root, Linux)
	$(BIN)/python -m tests.cloudbox $(ARGS)

bench: setup ## Measure against peers; prints the tables that are committed in benchmarks/
	for script in benchmarks/bench_*.py benchmarks/trainer/bench_*.py; do $(BIN)/python $$script; done

setup: room system $(READY)

room:
	@[ -e $(READY) ] || bash infra/setup/room.sh $(VENV) tests

room-demo:
	@[ -e $(DEMO_READY) ] || bash infra/setup/room.sh $(VENV) trainer

system:
	@bash infra/setup/system.sh

tools: room system $(READY)
	@bash infra/setup/system.sh tests
	@$(BIN)/python -m tests.cloudbox.nspawn_needs

$(DEMO_READY): pyproject.toml constraints.txt locks/trainer.txt
	@bash infra/setup/python.sh $(VENV) trainer
	@touch $(DEMO_READY)

$(READY): pyproject.toml constraints.txt locks/tests.txt
	@bash infra/setup/python.sh $(VENV) tests
	@touch $(READY) $(DEMO_READY)

clean: ## Remove what set-up made
	rm -rf $(VENV) dist build *.egg-info
