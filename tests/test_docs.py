"""What the documentation says is run: the pages on extending, threats and scikit-learn, the examples and the README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def code_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run(script: str) -> subprocess.CompletedProcess:
    """In a process of its own: the pages add rules to the table."""
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("page", ["docs/extending.md", "docs/threats.md", "docs/scikit-learn.md", "README.md"])
def test_pages_run_as_they_stand(page: str) -> None:
    blocks = code_blocks(page)
    assert blocks, f"{page} has no code"
    result = run("\n\n".join(blocks))
    assert result.returncode == 0, result.stderr


def test_new_rules_of_the_page_obey_the_laws() -> None:
    """The rows and the rule that the page adds are found by the law tests through the table alone."""
    script = (
        "\n\n".join(code_blocks("docs/extending.md"))
        + """
import sys
sys.path.insert(0, "tests")
import test_laws
for name in ("sinh.default", "sinh_.default", "cosh.default", "addr.default"):
    (rule,) = [r for r in test_laws.LAWFUL if str(r.operator) == "aten." + name]
    for domain in ("interval", "zonotope", "own rows"):
        for dtype in (torch.float32, torch.float64):
            test_laws.test_inclusion.hypothesis.inner_test(rule, dtype, domain, 1)
    test_laws.test_points_give_the_plain_result(rule)
"""
    )
    result = run(script)
    assert result.returncode == 0, result.stderr


def test_own_loop_example() -> None:
    sys.path.insert(0, str(ROOT / "examples"))
    import own_loop

    interval, zonotope = (own_loop.train(domain, epochs=3) for domain in ("interval", "zonotope"))
    assert zonotope >= interval and zonotope > 0.5
    result = subprocess.run(
        [sys.executable, "examples/own_loop.py"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0 and result.stdout.count("certified accuracy") == 2, result.stderr
