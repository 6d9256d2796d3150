# Each target makes .venv by itself, with nothing but python3 on the machine, and does nothing twice.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# More than the two cores that are counted with: many tests wait for programs.
WORKERS ?= 4
SOAK_TIMEOUT_S := 3600

.PHONY: help demo programs test check bench soak constraints clean

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile

demo: $(READY) ## three example plugins in two turns of each harness that is here, with the proof of what was sent
	@$(BIN)/buzz demo

programs: $(READY) ## fetch the programs of the harnesses, into the home or $BUZZ_PROGRAMS (1 GB)
	$(BIN)/buzz harness install codex goose pi

test: $(READY) ## all tests, with reduced counts (under ten minutes on two cores)
	$(BIN)/pytest -n $(WORKERS)

check: $(READY) ## style, types, layers, dependencies, spelling, length of modules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/codespell
	$(BIN)/pytest -q tests/quality/test_modules.py

bench: $(READY) ## the speed that we owe, each row beside its peer
	$(BIN)/python -m tests.benchmarks

soak: $(READY) ## all tests with full counts (hours)
	BUZZ_SOAK=1 $(BIN)/pytest -n $(WORKERS) --timeout $(SOAK_TIMEOUT_S)

constraints: ## resolve pyproject.toml in a fresh environment and write constraints.txt
	rm -rf $(VENV)
	: > constraints.txt
	$(MAKE) $(READY)
	{ echo '# The versions that Buzz is built and tested with, one a line: names and versions only.'; \
	  echo '# Made anew by `make constraints`, which resolves pyproject.toml in a fresh environment.'; \
	  $(BIN)/python -m pip freeze --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt
	touch $(READY)

clean: ## take away everything that was made
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Buzz needs Python 3.11 or newer as $(PYTHON); name another with: make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "This Python cannot make environments; install its venv package (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing into $(VENV), once (the Claude Code program alone is 400 MB) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[dev,all]'
	@touch $@
