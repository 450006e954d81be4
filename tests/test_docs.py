"""What the documentation says is run: every page with code, the examples and the README. And the site builds."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_main
from playwright.sync_api import Browser

import boundflow as bf

ROOT = Path(__file__).parents[1]


def code_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run(script: str, folder: Path = ROOT) -> subprocess.CompletedProcess:
    """In a process of its own: the pages add rules to the table."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


PAGES = [str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]]


@pytest.mark.parametrize("page", [page for page in PAGES if code_blocks(page)])
def test_pages_run_as_they_stand(page: str, tmp_path: Path) -> None:
    """In a folder that has the examples and nothing else: pages save files."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    result = run("\n\n".join(code_blocks(page)), tmp_path)
    assert result.returncode == 0, result.stderr


def test_the_commands_of_the_readme_work_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As typed, and what they say is what the README quotes; setting up is what `make` does before the tests."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "README.md").read_text()
    commands = re.findall(r"^\.venv/bin/fullcert (.+)$", page, re.MULTILINE)
    assert len(commands) == 2
    said = ""
    for command in commands:
        assert run_main(*shlex.split(command)) == 0
        said += " ".join(capsys.readouterr().out.split())
    (quoted,) = re.findall(r"\*(No one who flipped [^*]+)\*", page)
    assert " ".join(quoted.split()) in said
    landing = (ROOT / "docs" / "index.md").read_text()
    assert " ".join(quoted.split()) in landing and commands[0] in landing.replace("\\\n    ", "")
    assert "make demo" in page and "make test" in page


def test_pages_that_promise_code_have_it() -> None:
    told = {"README.md", "docs/extending.md", "docs/threats.md", "docs/tutorial.md", "docs/scikit-learn.md"}
    assert told | {page for page in PAGES if page.startswith("docs/howto/")} <= {p for p in PAGES if code_blocks(p)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation site, built strictly: a broken link or an unknown name is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return folder


def test_the_site_loads_nothing_from_outside(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text())
        assert not [tag for tag in tags if re.search(r"(?:https?:)?//", tag)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", sheet.read_text()), sheet


def test_pages_fit_a_screen_and_do_not_scroll_sideways_on_a_phone(site: Path, browser: Browser) -> None:
    """At 1280 pixels no table is cut off; on a phone what is wider than the page moves in a box of its own."""
    page, wrong = browser.new_page(), []
    pages = [one for one in sorted(site.rglob("*.html")) if "assets" not in one.parts and one.name != "404.html"]
    assert len(pages) > 30
    for one in pages:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(one.as_uri(), wait_until="domcontentloaded")
        wide = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
        if page.locator(".md-typeset__scrollwrap").evaluate_all(wide):
            wrong.append(f"{one.name}: a table is cut off")
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                wrong.append(f"{one.name}: {width} pixels are not enough")
    page.close()
    assert wrong == []


def test_the_report_to_look_at_is_of_this_version() -> None:
    """That of 12 flips, by fullcert sweep --dataset breast-cancer --flips 1,4,12 --attacked --targets 5 --out runs/bc.

    Then fullcert audit --budget 30 --report.
    """
    page = (ROOT / "docs" / "assets" / "report.html").read_text()
    templates = ROOT / "fullcert" / "report" / "templates"
    assert (templates / "report.js").read_text() in page and (templates / "report.css").read_text() in page
    assert (
        "What to check next" in page and "What is settled, and what is open" in page and "accuracy under attack" in page
    )


def test_formulas_and_search_need_no_server(site: Path) -> None:
    theory = (site / "theory.html").read_text()
    assert theory.count('class="arithmatex"') > 8 and "assets/katex/katex.min.js" in theory
    assert (site / "search" / "search_index.js").is_file() and "assets/iframe-worker/shim.js" in theory
    styles = (site / "assets" / "katex" / "katex.min.css").read_text()
    fonts = set(re.findall(r"url\(([^)]+)\)", styles))
    assert fonts and all((site / "assets" / "katex" / font).is_file() for font in fonts)


def test_the_reference_has_every_public_name(site: Path) -> None:
    reference = (site / "api.html").read_text()
    names = set(bf.__all__) - {"losses", "rounding", "rules", "threats", "errors", "__version__"}
    assert not {name for name in names if not re.search(rf'id="boundflow\.(?:errors\.)?{name}"', reference)}


def test_new_rules_of_the_page_obey_the_laws() -> None:
    """The rows and the rule that the page adds are found by the law tests through the table alone."""
    script = (
        "\n\n".join(code_blocks("docs/extending.md"))
        + """
import sys
sys.path[:0] = ["tests", "tests/boundflow/rules"]
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
