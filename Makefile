# make demo | test | test-all | check: each makes its own environment in $(VENV) first.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Of the tests' environment; dev,frameworks adds torch and JAX.
EXTRAS ?= dev

# Two workers, each with whole files; more would disturb the times that tests measure. One process: make test PARALLEL=
PARALLEL ?= -n 2 --dist loadfile --no-loadscope-reorder
SLOW = docs or examples or packaging or browser or matrix

.PHONY: demo test test-all lint check bench clean

demo: $(VENV)/installed
	$(BIN)/roofline analyze examples/worked_example --out build/demo
	$(BIN)/python -m pytest examples/kernels --roofline -p no:cacheprovider

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest $(PARALLEL) -m "not ($(SLOW))"

test-all: $(VENV)/installed-dev
	$(BIN)/python -m pytest $(PARALLEL)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test-all

bench: $(VENV)/installed
	$(BIN)/python benchmarks/bench_analyze.py

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[examples]"
	touch $@

$(VENV)/installed-dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS)]"
	touch $(VENV)/installed $@

clean:
	rm -rf $(VENV) build dist
