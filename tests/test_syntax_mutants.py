"""Bugs are drawn from the syntax tree: what is known of them is about bugs that are there."""

from __future__ import annotations

import ast
import json
from collections import Counter
from itertools import islice

import syntax_bugs
from syntax_bugs import FILES, ROOT
from syntax_mutants import REMEMBERED
from syntax_mutants_that_stay import STAYS


def test_what_is_known_is_about_bugs_that_are_there() -> None:
    names = {bug.name for file in FILES for bug in syntax_bugs.bugs(file)}
    assert set(STAYS) <= names, set(STAYS) - names
    remembered = json.loads(REMEMBERED.read_text())
    assert not set(STAYS) & set(remembered), "what a test notices needs no reason why none can"
    assert set(remembered) & names


def test_bugs_of_all_kinds_are_drawn_from_every_file() -> None:
    kinds = Counter[str]()
    for file in FILES:
        drawn = list(islice(syntax_bugs.drawn(file), syntax_bugs.count(file)))
        assert drawn, file
        kinds += Counter(bug.kind for bug in drawn)
        assert ast.parse(drawn[0].planted((ROOT / file).read_text()))
    assert sum(kinds.values()) >= 300 and len(kinds) == 12, kinds


def test_the_draw_of_a_function_does_not_go_by_the_others() -> None:
    """The digest of a bug is of its own file, function and line: others come and go."""
    ranks = [syntax_bugs._rank(bug) for bug in syntax_bugs.drawn("fullcert/data/dates.py")]
    assert ranks == sorted(ranks) and syntax_bugs._rank(next(syntax_bugs.drawn("fullcert/data/dates.py"))) == ranks[0]
