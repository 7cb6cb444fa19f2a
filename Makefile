# The Mathematics of Attention. `make` alone says what there is.
PYTHON ?= python3
JOBS   ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PORT   ?= 8000
SET    ?=

PY    := .venv/bin/python
READY := .venv/.ready
COURSE := $(PY) exercises/course.py
INSTRUCTORS = @test -d exercises/source || { echo "This is the public repository: \`make $@\` works in the instructor's, where the sources of the problem sets are." >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help setup book pdf zip test check lab serve release grade public bench facts notebooks lock clean bench-grading grade-big-class

help:  ## this list
	@echo "The Mathematics of Attention: make <target>   (the first one also makes .venv, once)"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
	@echo "  Another interpreter: make PYTHON=python3.12 book    More processes: make JOBS=8 test"

$(READY): requirements.txt pyproject.toml scripts/setup_env.py
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "There is no $(PYTHON) here: install Python 3.11 or newer, or name one: make PYTHON=python3.12 <target>" >&2; exit 1; }
	@$(PYTHON) scripts/setup_env.py

setup: $(READY)  ## only make .venv

book: $(READY)  ## execute the notebooks and build _build/html/index.html
	@$(PY) scripts/build_book.py --jobs $(JOBS)

pdf: book  ## print the whole book to _build/the-mathematics-of-attention.pdf (needs a browser, some minutes)
	@$(PY) scripts/pdf_book.py

zip: book  ## the built pages in _build/the-mathematics-of-attention.zip, to read without a network
	@$(PY) scripts/zip_book.py

test: $(READY)  ## everything: the book, stored outputs of every notebook, library, exercises, built pages
	@$(PY) scripts/run_tests.py --jobs $(JOBS)

check: $(READY)  ## the short check: ruff, and the fast tests that need no built book
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .
	@$(PY) scripts/run_tests.py --quick --jobs $(JOBS)

lab: $(READY)  ## JupyterLab with nbgrader's extensions, on the exercises
	@cd exercises && ../.venv/bin/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root)

serve: book  ## the built book on http://127.0.0.1:8000 (PORT=…)
	@echo "The book is at http://127.0.0.1:$(PORT)/ (Ctrl-C stops)"
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

release: $(READY)  ## write the students' versions of the problem sets (SET=…)
	$(INSTRUCTORS)
	@$(COURSE) release $(SET)

# A round that graded everybody has succeeded, also if a submission wants your eye: nbreferee's exit code 1 is no error here.
grade: $(READY)  ## grade what lies in exercises/submitted (SET=…)
	$(INSTRUCTORS)
	@.venv/bin/nbreferee grade --course exercises $(SET) || test $$? -eq 1

public: $(READY)  ## write the repository for students and readers to _build/public (PUSH=<url> pushes it)
	$(INSTRUCTORS)
	@PYTHONPATH=exercises $(PY) scripts/public_repository.py --push "$(PUSH)"

bench: $(READY)  ## time the library against the alternatives; print the ratios and write _build/bench.json
	@$(PY) -m pytest -q tests/bench --confcutdir=tests/bench -p no:xdist -p no:cacheprovider --benchmark-disable-gc --benchmark-timer=time.process_time --benchmark-columns=min,median,rounds

bench-grading: $(READY)  ## submissions a minute, nbgrader against nbreferee; writes _build/bench-grading.json
	@$(PY) scripts/bench_grading.py

grade-big-class: $(READY)  ## 1,000 students, 8 sets, killed six times and resumed; writes _build/big-class.json
	@$(PY) scripts/grade_big_class.py

facts: $(READY)  ## count and print _build/facts.json, the figures of the status page
	@$(PY) scripts/facts.py

notebooks: $(READY)  ## execute chapters/**/*.ipynb and store their outputs in canonical form (NB=path for one)
	@$(PY) scripts/notebooks.py --jobs $(JOBS) $(NB)

lock: $(READY)  ## resolve requirements.in afresh and rewrite requirements.txt
	@$(PY) scripts/lock.py

clean:  ## remove _build and every cache (.venv stays: rm -r .venv)
	@rm -rf _build .pytest_cache .ruff_cache .hypothesis .benchmarks
	@find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
	@find . -path ./.venv -prune -o -name .ipynb_checkpoints -type d -prune -exec rm -rf {} +
