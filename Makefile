# One virtual environment, made once and again when one of these files changes.
INSTALLS := pyproject.toml constraints.txt boundflow/version.py
PYTHON ?= python3
INSTALLED := .venv/.installed
# what the command alone needs
COMMAND := .venv/.command

.PHONY: demo test lint format docs mutants syntax-mutants rounding-terms bench clean

demo: $(COMMAND)  ## train and certify Two-Moons, draw its decision barriers
	.venv/bin/fullcert train --dataset two-moons --epsilon 0.001 --domain zonotope --overwrite --out runs/demo

test: lint
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n 2

lint: $(INSTALLED)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

format: $(INSTALLED)
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

docs: $(INSTALLED)  ## the documentation site, in build/site; the tests build it too
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

mutants: $(INSTALLED)  ## plant bugs, one at a time, and show that the tests catch each
	.venv/bin/python tests/mutants.py

syntax-mutants: $(INSTALLED)  ## plant bugs drawn from the syntax tree of fullcert and of the analyses
	test -f build/executed_lines.json || .venv/bin/python tests/executed_lines.py
	.venv/bin/python tests/syntax_mutants.py

rounding-terms: $(INSTALLED)  ## remove every rounding term, one at a time, and show that a law notices each
	-.venv/bin/python tests/rounding_terms.py --here  # most of them, in one process
	.venv/bin/python tests/rounding_terms.py --new    # those that no law has noticed, by all tests of their file

bench: $(INSTALLED)
	.venv/bin/python -m fullcert.bench

clean:
	rm -rf runs/demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.venv -prune -o -type d -name __pycache__ -exec rm -rf {} +

$(COMMAND): $(INSTALLS)
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -c constraints.txt -e ".[command]"
	touch $@

$(INSTALLED): $(INSTALLS)
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -c constraints.txt -e ".[test]"
	touch $@
