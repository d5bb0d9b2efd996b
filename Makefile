# Everything needs only Python 3.11+, pip and make; the environment is made in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# One thread per process: on a shared machine two OpenMP threads can be slower than one.
export OMP_NUM_THREADS ?= 1
export PYTHONHASHSEED ?= 0

.PHONY: install demo test lint types unit bench clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,tensorboard,openvino]'
	touch $@

demo: install
	$(BIN)/smoothheads demo --out demo

test: lint types unit

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: install
	$(BIN)/mypy

unit: install
	$(BIN)/pytest -n 2 -m 'not openvino'
	$(BIN)/pytest -m openvino

# About half an hour on two cores; benchmarks/README.md has the results and the ones that need a checkpoint.
bench: install
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	for network in resnet110 resnet20 resnet8 lenet digits; do \
	  $(BIN)/smoothheads bench votes --network $$network --profile --out bench || exit 1; done
	for network in resnet20 resnet110; do \
	  $(BIN)/smoothheads bench train --network $$network --profile --out bench || exit 1; done
	$(BIN)/smoothheads bench scaling --out bench

clean:
	rm -rf $(VENV) demo bench .mypy_cache .ruff_cache .pytest_cache
