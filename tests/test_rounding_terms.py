"""The list of rounding terms is read from the syntax tree: what is known of them is about terms that are there."""

from __future__ import annotations

import ast
import json

import rounding_terms
from rounding_terms_that_stay import STAYS


def test_what_is_known_is_about_terms_that_are_there() -> None:
    names = {term.name for term in rounding_terms.all_terms()}
    remembered = json.loads(rounding_terms.REMEMBERED.read_text())
    assert len(names) > 200 and set(STAYS) <= names, set(STAYS) - names
    assert len(set(remembered) & names) > 30
    assert not set(STAYS) & set(remembered), "what a law notices needs no proof that none can"


def test_every_removal_is_a_program() -> None:
    for term in rounding_terms.all_terms():
        text = (rounding_terms.PACKAGE / term.file).read_bytes()
        made = text[: term.begin] + term.wrong.encode() + text[term.end :]
        assert made != text
        ast.parse(made)
