# make quickstart    a gMLP on real images, with JAX, from nothing
# make test          the tests on TensorFlow, JAX and PyTorch
# make test-all      the slow ones too
# make help          the rest

PYTHON ?= python3
# Where to take PyTorch's CPU wheels from: an index address or a folder. Empty
# takes what pip finds, which on Linux is the larger build for GPUs.
TORCH_WHEELS ?=
# Which backends to test, and with how many processes.
BACKENDS ?= tensorflow jax torch
JOBS ?= 2

LOCK = requirements-lock.txt
# pip's option for TORCH_WHEELS: a folder or an index?
WHEELS = $(if $(TORCH_WHEELS),$(if $(wildcard $(TORCH_WHEELS)),--find-links,--extra-index-url) $(TORCH_WHEELS))
# PyTorch spins while it waits, which halts a busy machine; TensorFlow chats.
ENVIRONMENT = OMP_WAIT_POLICY=PASSIVE TF_CPP_MIN_LOG_LEVEL=3

.PHONY: help quickstart test test-all tests-fast tests-slow check-install lint lock clean

help:
	@echo "make quickstart  train a gMLP on real digits with JAX; see runs/"
	@echo "make test        tests on TensorFlow, JAX and PyTorch"
	@echo "make test-all    the slow tests too"
	@echo "make tests-slow  only the slow tests: tutorials, solutions"
	@echo "make check-install  each backend installed alone"
	@echo "make lint        ruff"
	@echo "make lock        write $(LOCK) anew from the newest versions"
	@echo "make clean       remove the environments"
	@echo "Variables: PYTHON, TORCH_WHEELS, BACKENDS, JOBS; see CONTRIBUTING.md"

quickstart: .venv/installed
	KERAS_BACKEND=jax .venv/bin/python -m recipes.vision --out runs/quickstart

# One environment with one backend, for users.
.venv/installed: pyproject.toml $(LOCK)
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet -c $(LOCK) -e '.[jax]'
	touch $@

# One with all three, for tests. PyTorch comes first, so that the wheel that
# was named is the one that stays.
.venv-test/installed: pyproject.toml $(LOCK)
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/python -m pip install --quiet $(WHEELS) -c $(LOCK) torch
	.venv-test/bin/python -m pip install --quiet $(WHEELS) -c $(LOCK) -e '.[all,test]'
	touch $@

test: lint tests-fast

test-all: lint tests-fast tests-slow check-install

PYTEST = .venv-test/bin/python -m pytest -q -n $(JOBS)

tests-fast: .venv-test/installed
	set -e; others=""; for backend in $(BACKENDS); do \
	  echo "== $$backend"; \
	  $(ENVIRONMENT) KERAS_BACKEND=$$backend $(PYTEST) \
	    --dist worksteal -m "not slow and not across$$others"; \
	  others=" and not once"; \
	done
ifeq ($(words $(BACKENDS)),3)
	@echo "== across backends"
	$(ENVIRONMENT) KERAS_BACKEND=jax $(PYTEST) -n 0 -m across
endif

tests-slow: .venv-test/installed
	set -e; for backend in $(BACKENDS); do \
	  echo "== $$backend, slow"; \
	  $(ENVIRONMENT) KERAS_BACKEND=$$backend $(PYTEST) -n 0 -m slow; \
	done

# An install with one backend works, and finds it without KERAS_BACKEND.
check-install:
	set -e; for backend in $(BACKENDS); do \
	  echo "== $$backend, installed alone"; \
	  rm -rf .venv-one && $(PYTHON) -m venv .venv-one; \
	  if [ $$backend = torch ]; then \
	    .venv-one/bin/python -m pip install --quiet $(WHEELS) -c $(LOCK) torch; fi; \
	  .venv-one/bin/python -m pip install --quiet $(WHEELS) -c $(LOCK) -e ".[$$backend]"; \
	  env -u KERAS_BACKEND KERAS_HOME=.venv-one $(ENVIRONMENT) \
	    .venv-one/bin/python -m recipes.vision --epochs 2 \
	    --out .venv-one/run; \
	done
	rm -rf .venv-one

lint: .venv-test/installed
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .

lock:
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet $(WHEELS) torch==2.13.0
	.venv-lock/bin/python -m pip install --quiet $(WHEELS) torch==2.13.0 -e '.[all,test]'
	.venv-lock/bin/python -m pip freeze --exclude-editable \
	  | sed 's/+cpu$$//' > $(LOCK)
	rm -rf .venv-lock

clean:
	rm -rf .venv .venv-test .venv-lock .venv-one
