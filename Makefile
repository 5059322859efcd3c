# Everything is installed into .venv; a machine needs Python >= 3.11, pip and make.
PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
BIN := $(VENV)/bin
BENCH_BIN := $(BENCH_VENV)/bin
ALS_VENV ?= .venv-bench-ials
ALS_BIN := $(ALS_VENV)/bin
SGD_VENV ?= .venv-bench-sgd
SGD_BIN := $(SGD_VENV)/bin
ANN_VENV ?= .venv-bench-retrieval
ANN_BIN := $(ANN_VENV)/bin
PIP_FLAGS ?= --quiet --disable-pip-version-check
DATA ?= ../shared/data
WORKERS ?= 3
# Many tests start processes: they start faster if compiled modules may be kept.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help demo test pytest test-slow test-all lint format bench-speed bench-ials bench-sgd bench-retrieval bench-quality clean

help:
	@echo "make demo      the main job on the bundled data"
	@echo "make test      lint, type check, tests (about 6 minutes on two cores; WORKERS=3)"
	@echo "make test-all  the same and the slow tests"
	@echo "make lint      ruff and mypy only"
	@echo "make bench-speed     speed against peers and physical limits, into docs/benchmarks.md"
	@echo "make bench-ials DATA=folder      the same for implicit ALS against implicit and irspack (an hour)"
	@echo "make bench-sgd DATA=folder       the same for BPR and WARP against implicit, Cornac and LightFM (an hour)"
	@echo "make bench-retrieval     the same for search in a million items against faiss, hnswlib, usearch and ScaNN"
	@echo "make bench-quality DATA=folder   published protocols, into docs/benchmarks.md; benchmarks/README.md says what the folder holds"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Shortlist needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e .
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e ".[test,torch,tune,ann,rerank]"
	touch $@

$(BENCH_VENV)/.bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e ".[bench]"
	touch $@

demo: $(VENV)/.base
	$(BIN)/shortlist demo

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(VENV)/.test
	$(MAKE) --no-print-directory --jobs=2 lint pytest

pytest: $(VENV)/.test
	$(PYTEST)

test-slow: $(VENV)/.test
	SHORTLIST_THREADS= $(PYTEST) -m slow

test-all: test test-slow

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-speed: $(BENCH_VENV)/.bench
	$(BENCH_BIN)/python -m benchmarks.speed.all

# An environment of its own: irspack needs NumPy 2, RecTools needs NumPy 1.
$(ALS_VENV)/.bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ALS_VENV)
	$(ALS_BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e ".[bench-ials]"
	touch $@

bench-ials: $(ALS_VENV)/.bench
	$(ALS_BIN)/python -m benchmarks.speed.all --only ials --data $(DATA)
	$(ALS_BIN)/python -m benchmarks.speed.ials growth --plot docs/ials.svg

$(SGD_VENV)/.bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(SGD_VENV)
	$(SGD_BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e ".[bench-sgd]"
	touch $@

bench-sgd: $(SGD_VENV)/.bench
	$(SGD_BIN)/python -m benchmarks.speed.all --only sgd --data $(DATA)

$(ANN_VENV)/.bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ANN_VENV)
	$(ANN_BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e ".[bench-retrieval]"
	touch $@

bench-retrieval: $(ANN_VENV)/.bench
	$(ANN_BIN)/python -m benchmarks.speed.all --only retrieval

bench-quality: $(VENV)/.base
	$(BIN)/python -m benchmarks.quality.board measure --data $(DATA)

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(ALS_VENV) $(SGD_VENV) $(ANN_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src -name "*.nbi" -delete -o -name "*.nbc" -delete
