# Hemiola's commands. The first one makes .venv and installs; later ones start at once.
#   make demo     chat, pictures and a clip from one engine; files in out/
#   make serve    the same models over HTTP            make serve MODELS="Qwen/Qwen3-8B" PORT=9000
#   make test     every test that needs no GPU         make test TESTS=tests/core
#   make check    lint, format, types
#   make format   mends what `make check` says of lint and format
#   make clean    removes what was made here, .venv too

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
INSTALLED := .venv/installed
TYPES := .mypy_cache/root
TESTS ?= tests
MODELS ?= demo
PORT ?= 8000

# One torch thread beside anything else that is busy; no model hub in tests.
CALM := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false
OFFLINE := HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1

.PHONY: demo serve test check format install clean

demo: $(INSTALLED)
	@$(BIN)/hemiola demo --output out

serve: $(INSTALLED)
	@exec $(BIN)/hemiola serve $(MODELS) --port $(PORT)

test: $(INSTALLED)
	@$(CALM) $(OFFLINE) $(BIN)/pytest -m "not gpu" $(TESTS)

# The repository's root is the package, so mypy is shown it under its name; samples stand outside of it.
check: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@mkdir -p $(TYPES) && ln -sfn "$(CURDIR)" $(TYPES)/hemiola && ln -sfn "$(CURDIR)/samples" $(TYPES)/samples
	@MYPYPATH=$(TYPES) $(BIN)/mypy -p hemiola -p samples

format: $(INSTALLED)
	@$(BIN)/ruff check --fix-only -q .
	@$(BIN)/ruff format .

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Hemiola needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Installing into .venv with $$($(PYTHON) -V) (once; a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

clean:
	rm -rf .venv build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
