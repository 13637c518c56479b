# make lab        JupyterLab, at the first notebook
# make test       all tests
# make notebooks  build the notebooks whose lessons or references have changed
# Each sets up what it needs first.

PYTHON := .venv/bin/python
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: lab test notebooks system

lab: .venv/course
	$(PYTHON) -m jupyter lab $(AS_ROOT) notebooks/00-start/start.ipynb

test: .venv/dev system
	$(PYTHON) -m pytest -n 2 --dist loadgroup

notebooks: .venv/dev
	$(PYTHON) -m autograder build

.venv/course: pyproject.toml
	python3 -m venv .venv
	$(PYTHON) -m pip install --quiet --upgrade pip
	$(PYTHON) -m pip install --quiet --progress-bar on -e .
	touch $@

.venv/dev: .venv/course
	$(PYTHON) -m pip install --quiet --progress-bar on -e '.[dev]'
	touch $@

# Debian's packages that tests use: where they are missing and can't be installed, those tests skip and say why
system:
	@command -v bwrap >/dev/null && command -v chromium >/dev/null || \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap chromium >/dev/null; \
	else echo "bubblewrap or chromium is missing: install them for the tests that need them"; fi
