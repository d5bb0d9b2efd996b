# Everything needs only Python 3.11+, pip and make; the environment is made in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
EXTRAS := demo,dev,tensorboard,openvino,serve,hub,onnx,ray

# One thread per process: on a shared machine two OpenMP threads can be slower than one.
export OMP_NUM_THREADS ?= 1
export PYTHONHASHSEED ?= 0
# Test modules are rewritten and compiled once, not once per process.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test lint types unit browser openvino ray-faults fuzz lowest docs notebooks dist bench clean

# How many processes share the tests; `make test JOBS=8` on a larger machine.
JOBS ?= 2
# Output of lanes that run side by side is kept together where make can do that (4.0 and later).
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

install: $(STAMP)

# Modules are compiled when they are first imported, which few of the thousands ever are.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

demo: install
	$(BIN)/smoothheads demo --out demo

# Two lanes: the tests, and beside them what runs in one process each. No core waits for another.
test: install
	$(MAKE) --no-print-directory -j 2 $(SYNC) unit types openvino lint

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: install
	$(BIN)/mypy

# A file's tests run in one process, so that what they share is made once.
unit: install browser
	$(BIN)/pytest -n $(JOBS) --dist loadfile -m 'not openvino'

# The tests of the page need Chromium: installed where that is allowed, else they are skipped.
browser:
	@command -v chromium || command -v google-chrome || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq chromium >/dev/null 2>&1 && command -v chromium; } \
	  || echo 'no Chromium, and none can be installed here: the tests of the page are skipped'

# OpenVINO is loaded in a process of its own.
openvino: install
	$(BIN)/pytest -m openvino $(shell grep -rl 'mark.openvino' tests)

# Workers and nodes of a real Ray cluster are killed at 20 random moments; a few minutes.
ray-faults: install
	$(BIN)/pytest -m ray_faults tests/ray

# Guides, notebooks and reference as one site; warnings are errors.
docs: install
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d site/.doctrees docs site

# Runs the notebooks again and keeps what they show.
notebooks: install
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/python docs/notebooks/run.py

# The tests with the lowest versions that pyproject.toml declares, in an environment of their own.
# LOWEST='--override FILE' keeps a package where this machine has no other.
lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct \
	  $(LOWEST) -e '.[$(EXTRAS)]'
	.venv-lowest/bin/pytest -n $(JOBS) -m 'not openvino'
	.venv-lowest/bin/pytest -m openvino

# Ten minutes of damaged files for every reader; the tests do a few thousand. docs/fuzz.md has the counts.
fuzz: install
	$(BIN)/python -m tests.fuzz.run --seconds 600

# Source archive and wheel in dist/, checked as the index would check them.
dist: install
	$(BIN)/pip install --quiet --disable-pip-version-check build twine
	rm -rf dist && $(BIN)/python -m build --quiet && $(BIN)/twine check --strict dist/*

# About half an hour on two cores; benchmarks/README.md has the results and the ones that need a checkpoint.
bench: install
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	for network in resnet110 resnet20 resnet8 lenet digits; do \
	  $(BIN)/python -m benchmarks.votes --network $$network --out bench || exit 1; done
	for network in resnet20 resnet110; do \
	  $(BIN)/python -m benchmarks.train_step --network $$network --out bench || exit 1; done

clean:
	rm -rf $(VENV) .venv-lowest demo dist bench site .mypy_cache .ruff_cache .pytest_cache
