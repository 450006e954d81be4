"""The report: true words, nothing from outside, and a page that works for everyone who opens it."""

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from fullcert import report
from fullcert.report import axes, barriers, charts, claims, outlines, page
from fullcert.results import constant_answer
from fullcert.system import numbers_as_text
from fullcert.system.numbers_as_text import number

HOSTILE = "</script><script>alert(1)</script><!--\u2028\u2029 \"'&<b>"
POINTS = 30
EPSILONS = [0.0, 0.01, 0.1, 0.5]


# --- an evaluation, without training ------------------------------------------------------------------------------


def cells(gap: float) -> str:
    """A plane of two classes on both sides of a wave; closer to it than `gap` nothing is certified."""
    places = [-1 + 2 * index / (POINTS - 1) for index in range(POINTS)]
    leads = [y - 0.5 * math.sin(3 * x) for y in places for x in places]
    return "".join("." if abs(lead) <= gap else str(int(lead > 0)) for lead in leads)


def sample(row: int) -> dict[str, Any]:
    """Every tenth sample abstains, every seventh is wrong."""
    lead = 0.001 + abs(math.sin(row)) if row % 10 else -abs(math.cos(row))
    label = row % 2
    center = (1 + lead) * (1 if label else -1)
    return {
        "row": row,
        "true": str(label if row % 7 else 1 - label),
        "label": str(label),
        "certified": row % 10 != 0,
        "margin": lead,
        "lower": [-center - 0.1, center - 0.1],
        "upper": [-center + 0.1, center + 0.1],
    }


def evaluation(samples: int = 200, **changes: Any) -> dict[str, Any]:
    rows = [sample(row) for row in range(samples)]
    certified = sum(row["certified"] for row in rows)
    right = sum(row["certified"] and row["true"] == row["label"] for row in rows)
    steps = [
        {
            "step": step,
            "loss": 1 / step,
            "width": 1e-5 * 1.3**step,
            "nominal_accuracy": 0.8 + 0.004 * step if step % 4 == 0 else None,
            "certified_accuracy": 0.8 + 0.003 * step if step % 4 == 0 else None,
            "seconds": 0.1 * step,
        }
        for step in range(1, 41)
    ]
    return {
        "format": 1,
        "title": "two-moons",
        "task": "classification",
        "threat": {
            "training": "changed every feature of every training sample by up to 0.001",
            "test": "moved every feature of the test input by up to 0.01",
            "formal": "Linf(0.001)",
        },
        "headline": {
            "samples": samples,
            "certified": certified,
            "certified_accuracy": right / max(samples, 1),
            "nominal_accuracy": 0.96,
            "certified_robustness": certified / max(samples, 1),
            "void_at_step": None,
        },
        "steps": steps,
        "radii": [
            {"epsilon": epsilon, "certified_accuracy": 0.9 - epsilon, "certified_robustness": 0.95 - epsilon}
            for epsilon in EPSILONS[:3]
        ],
        "layers": [
            layer("0.weight", [16, 2], 0.01, 0.05),
            layer("0.bias", [16], 0.02, 0.02),
            layer("2.weight", [1, 16], 0.04, 0.06),
        ],
        "classes": ["0", "1"],
        "samples": rows,
        "samples_left_out": 0,
        "plane": {
            "features": ["first feature", "second feature"],
            "across": [-1.0, 1.0],
            "down": [-1.0, 1.0],
            "points": POINTS,
            "epsilons": EPSILONS,
            "start": 2,
            "certified": [cells(0.02 + epsilon) for epsilon in EPSILONS],
            "nominal": cells(-1),
            "train": [[math.sin(k), math.cos(2 * k), k % 2] for k in range(60)],
        },
        "details": [["what was fixed", [["seed", "0"], ["steps", "40"]]], ["what is covered", [["features", "all"]]]],
        "notes": [],
        "written": "boundflow 0.2.0, torch 2.13.0, rounding on",
        **changes,
    }


def layer(name: str, shape: list[int], mean: float | None, largest: float | None) -> dict[str, Any]:
    return {"name": name, "shape": shape, "mean_width": mean, "largest_width": largest, "typical_size": 0.7}


def regression() -> dict[str, Any]:
    rows = [
        {
            "row": k,
            "true": k / 7,
            "label": k / 7 + 0.01,
            "certified": True,
            "margin": None,
            "lower": [k / 7],
            "upper": [k],
        }
        for k in range(3, 40)
    ]
    headline = {
        "samples": 37,
        "certified": 37,
        "certified_accuracy": None,
        "nominal_accuracy": None,
        "certified_robustness": None,
        "void_at_step": None,
        "mean_width": 0.12,
        "mean_absolute_error": 0.3,
    }
    steps = [{**step, "nominal_accuracy": None, "certified_accuracy": None} for step in evaluation()["steps"]]
    radii = [{"epsilon": epsilon, "mean_width": 0.1 + epsilon} for epsilon in EPSILONS]
    changes = {"headline": headline, "steps": steps, "radii": radii, "samples": rows, "classes": [], "plane": None}
    return evaluation() | {"task": "regression", **changes}


def counts(samples: int, certified: int, **changes: Any) -> dict[str, Any]:
    base = evaluation()
    return base | {"headline": base["headline"] | {"samples": samples, "certified": certified} | changes}


def with_names(name: str) -> dict[str, Any]:
    """An evaluation in which everything that has a name has this one."""
    text = json.dumps(evaluation())
    named = json.loads(text.replace('"1"', json.dumps(name)).replace('"two-moons"', json.dumps(name)))
    plane = {**named["plane"], "features": [name, name]}
    layers = [layer(name, [2], 0.1, 0.2)]
    threat = {"training": name, "test": name, "formal": name}
    details = [[name, [[name, name]]]]
    return named | {
        "plane": plane,
        "layers": layers,
        "threat": threat,
        "details": details,
        "notes": [name],
        "written": name,
    }


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


# --- words and numbers ----------------------------------------------------------------------------------------------

WHO = (
    "changed every feature of every training sample by up to 0.001 "
    "and moved every feature of the test input by up to 0.01"
)


@pytest.mark.parametrize(
    ("samples", "certified", "sentence"),
    [
        (200, 199, f"No one who {WHO} could have changed these 199 of 200 predictions, of which 1 is wrong."),
        (
            16281,
            12000,
            f"No one who {WHO} could have changed these 12,000 of 16,281 predictions, of which 2 are wrong.",
        ),
        (200, 200, f"No one who {WHO} could have changed any of these 200 predictions, of which none is wrong."),
        (200, 1, f"No one who {WHO} could have changed this one of 200 predictions, which is right."),
        (1, 1, f"No one who {WHO} could have changed this prediction, which is wrong."),
        (200, 0, "None of these 200 predictions is certified: it is not known whether"),
        (1, 0, "This prediction is not certified: it is not known whether"),
        (0, 0, "There were no test samples"),
    ],
)
def test_the_claim_is_grammatical_for_every_number(samples: int, certified: int, sentence: str) -> None:
    wrong = {199: 1, 12000: 2, 1: int(samples == 1)}.get(certified, 0)
    made = counts(samples, certified)
    made["headline"]["certified_accuracy"] = (certified - wrong) / max(samples, 1)
    assert sentence in claims.claim(made) and f">{sentence}" in report.render(made)


@pytest.mark.parametrize(
    ("headline", "sentence"),
    [
        (
            {"nominal_accuracy": 0.524, "majority_accuracy": 0.525},
            "52.4 %, and always answering the most frequent class",
        ),
        (
            {"mean_absolute_error": 3.0, "median_mean_absolute_error": 2.5},
            "is 3, and that of always answering the median",
        ),
    ],
    ids=["classes", "numbers"],
)
def test_a_model_that_learnt_nothing_is_called_that(headline: dict[str, float], sentence: str) -> None:
    """However much of it is certified: in the claim, which the command prints, too, and at the top of the report."""
    made = regression() if "mean_absolute_error" in headline else evaluation()
    made["headline"] |= headline
    said = claims.claim(made)
    assert "does not beat a constant answer" in said and sentence in said and sentence in report.render(made)
    assert constant_answer.beats(made["headline"]) is False
    better = made["headline"] | {"nominal_accuracy": 0.53, "mean_absolute_error": 2.4}
    assert constant_answer.beats(better) is True and "constant answer" not in claims.claim(made | {"headline": better})


SUBJECT = {"target": "class", "inputs": [9], "columns": 9, "training": 1486, "test": 134}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ["class: 0 or 1", "9 columns", "1,486 to train on, 134 to test on"]),
        ({"subject": SUBJECT | {"target": None, "columns": None}}, ["0 or 1", "9 features"]),
        ({"subject": SUBJECT | {"inputs": [3, 32, 30]}}, ["an image of 32 × 30 pixels in 3 channels"]),
        ({"classes": list("abcdef")}, ["class: one of 6 classes"]),
        ({"threat": {"training": "changed nothing", "test": "", "formal": ""}}, ["none: taken as they are"] * 2),
    ],
)
def test_the_head_says_what_is_predicted_from_what_and_against_whom(changes: dict[str, Any], said: list[str]) -> None:
    given = evaluation(**{"subject": SUBJECT, "finished": "2026-03-01 12:00 UTC", **changes})
    words = [fact.words for fact in claims.facts(given)]
    assert words[-1] == "2026-03-01 12:00 UTC" and [word for word in words if word in said] == said
    head = report.render(given).partition("</header>")[0]
    assert all(word in head for word in said)


def test_the_head_of_a_regression_says_that_a_number_is_predicted() -> None:
    assert "class: a number" in report.render(regression() | {"subject": SUBJECT}).partition("</header>")[0]


def test_the_head_of_an_earlier_evaluation_has_its_threats_alone() -> None:
    found = claims.facts(evaluation())
    assert [fact.name for fact in found] == ["Threat to the training data", "Threat to test inputs"]
    assert found[0].words == "someone changed every feature of every training sample by up to 0.001"
    assert found[0].typed == "Linf(0.001)"


def test_only_what_was_attacked_is_named() -> None:
    threat = {"training": "flipped a label", "test": "", "formal": "Labels()"}
    assert claims.claim(evaluation(threat=threat)).startswith("No one who flipped a label could have")
    threat = {"training": "", "test": "moved the test input", "formal": ""}
    assert claims.claim(evaluation(threat=threat)).startswith("No one who moved the test input could have")


def test_void_bounds_are_told_in_words() -> None:
    void = counts(200, 0, void_at_step=12, certified_accuracy=0.0, certified_robustness=0.0)
    rows = [
        {**row, "certified": False, "margin": None, "lower": [None] * 2, "upper": [None] * 2} for row in void["samples"]
    ]
    page = report.render(void | {"samples": rows, "layers": [layer("0.weight", [16, 2], None, None)]})
    assert "Nothing is certified: the bounds became void at step 12," in page
    assert "could have changed these" not in page and "no bounds" in page


def test_a_regression_speaks_of_bounds() -> None:
    page = report.render(regression())
    assert "could have moved any of these 37 predictions out of its bounds, which are 0.12 wide on average." in page
    assert "Mean absolute error" in page and "Accuracy over the steps" not in page and "Certified accuracy" not in page
    assert "Mean width of the predictions" in page and data_of(page)["label"][0] == 0.439


def test_what_is_missing_is_left_out() -> None:
    page = report.render(evaluation(plane=None, radii=[], steps=[], layers=[], notes=[]))
    assert all(f'id="{name}"' not in page for name in ("plane", "radius", "test", "training"))
    unlabelled = evaluation()
    headline = unlabelled["headline"] | {"certified_accuracy": None, "nominal_accuracy": None}
    rows = [{**row, "true": None} for row in unlabelled["samples"]]
    page = report.render(unlabelled | {"headline": headline, "samples": rows})
    assert "Nominal accuracy</dt>" not in page and "certified: 180" in page
    page = report.render(evaluation(notes=["rows did not fit"], samples_left_out=1))
    assert "Rows did not fit" in page and "1 further test sample is not in this list" in page


def test_numbers_are_rounded_to_the_safe_side() -> None:
    assert numbers_as_text.percent(0.9996) == "99.9 %" and numbers_as_text.percent(1.0) == "100.0 %"
    assert numbers_as_text.percent(0.57) == "57.0 %" and numbers_as_text.percent(0.0) == "0.0 %"
    assert numbers_as_text.below(0.123456) == 0.1234 and numbers_as_text.below(-0.123456) == -0.1235
    assert numbers_as_text.above(0.123456) == 0.1235 and numbers_as_text.above(-0.123456) == -0.1234
    assert numbers_as_text.above(0.1) == numbers_as_text.below(0.1) == 0.1
    assert numbers_as_text.above(1.7976931348623157e308) < math.inf
    assert numbers_as_text.width(0.12001) == "0.121" and numbers_as_text.width(None) == "–"
    written = [numbers_as_text.number(value) for value in (0, -0.25, 1200, 12345, 3e-9, 1e300, 0.00012)]
    assert written == ["0", "−0.25", "1200", "12340", "3e−9", "1e300", "0.00012"]


def test_the_table_holds_outward_bounds() -> None:
    source = evaluation()
    data = data_of(report.render(source))
    for index, row in enumerate(source["samples"]):
        assert data["margin"][index] <= row["margin"] < data["margin"][index] + 1e-3
        assert (data["margin"][index] > 0) == row["certified"]
        assert all(short <= value for short, value in zip(data["lower"][index], row["lower"], strict=True))
        assert all(short >= value for short, value in zip(data["upper"][index], row["upper"], strict=True))


def test_huge_bounds_do_not_break_the_page() -> None:
    row = {"row": 0, "true": "1", "label": "0", "certified": False, "margin": -1.7e308}
    huge = {**row, "lower": [-1.7e308, -1.0], "upper": [1.7976931348623157e308, 1.0]}
    steps = [{**step, "width": 10.0 ** (9 * step["step"] - 60)} for step in evaluation()["steps"]][:39]
    page = report.render(evaluation(samples=1) | {"samples": [huge], "steps": steps})
    assert data_of(page)["width"] == [None] and "nan" not in page.lower().split("<script")[0]


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 2"):
        report.render(evaluation(format=2))


# --- escaping and size ----------------------------------------------------------------------------------------------


def test_hostile_names_stay_text() -> None:
    plain, page = report.render(evaluation()), report.render(with_names(HOSTILE))
    assert page.count("<script") == plain.count("<script") and page.count("</script>") == plain.count("</script>")
    assert "alert(1)</script>" not in page and "<b>'" not in page and '"<b>' not in page
    data = data_of(page)
    assert data["names"] == ["0", HOSTILE] and "\u2028" not in page.split('id="data">')[1]


def test_half_a_surrogate_can_be_written() -> None:
    assert report.render(with_names("broken \ud800 name")).encode()


def test_nothing_is_asked_from_outside() -> None:
    page = report.render(evaluation())
    assert re.findall(r"\b(?:src|href|action|poster)\s*=\s*(?!\"#)", page) == []
    assert "@import" not in page and not re.search(r"url\((?!#)", page) and "default-src 'none'" in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_sixteen_thousand_samples_stay_small_and_quick() -> None:
    large = evaluation(samples=16281)
    report.render(evaluation())  # the template is compiled once
    start = time.process_time()
    page = report.render(large)
    assert time.process_time() - start < 2 and len(page.encode()) < 2_000_000
    assert len(data_of(page)["row"]) == 16281


def test_a_page_is_a_function_of_its_evaluation() -> None:
    assert report.render(evaluation()) == report.render(json.loads(json.dumps(evaluation())))


# --- axes and charts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0, 1], ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([1, 40], ["0", "10", "20", "30", "40"]),
        ([-3, 4], ["−4", "−2", "0", "2", "4"]),
        ([0.693, 0.694], ["0.6930", "0.6932", "0.6934", "0.6936", "0.6938", "0.6940"]),
        ([1e-4, 3e-4, 1e-1], ["10⁻⁴", "10⁻³", "10⁻²", "10⁻¹"]),
        ([1e-3, 1e-1], ["0.001", "0.01", "0.1"]),
        ([0, 1e-3, 1e-1], ["0", "0.001", "0.01", "0.1"]),
    ],
)
def test_ticks_are_round_numbers(values: list[float], labels: list[str]) -> None:
    assert [label for _, label in axes.axis_for(values).ticks] == labels


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0],
        [5],
        [-5],
        [0, 0],
        [1e-320],
        [1e300, -1e300],
        [1.7e308],
        [0, 1e-12],
        [1, 1 + 1e-15],
        [1e-9, 1e250],
        [3, 170],
    ],
)
def test_every_value_has_a_place(values: list[float]) -> None:
    axis = axes.axis_for(values)
    assert all(0 <= axis.place(value) <= 1 for value in values)
    places = [axis.place(value) for value, _ in axis.ticks]
    assert 1 <= len(places) <= 14 and places == sorted(places) and all(map(math.isfinite, places))


def test_accuracies_stay_within_a_hundred_percent() -> None:
    for value in (0.0, 0.5, 1.0):
        axis = axes.linear(value, value, within=(0.0, 1.0))
        assert 0 <= axis.low < axis.high <= 1 and axis.low <= value <= axis.high


def test_long_lines_keep_their_extremes() -> None:
    points = [(float(step), 1.0) for step in range(5000)]
    points[1234] = (1234.0, 9.0)
    kept = charts.thinned(points)
    assert len(kept) <= charts.DRAWN and (1234.0, 9.0) in kept and kept[0] == points[0] and kept[-1] == points[-1]
    assert kept == sorted(kept)


def test_a_chart_says_in_words_what_it_shows() -> None:
    chart = charts.line_chart("Loss", "step", [charts.Line("loss", "single", [(1, 0.5), (2, 0.25)])])
    assert 'aria-label="Loss. loss: 0.5 at step 1, 0.25 at step 2."' in chart.svg
    assert [row.cells for row in chart.rows] == [("1", "0.5"), ("2", "0.25")]


# --- regions of the plane -------------------------------------------------------------------------------------------


def area(chain: list[tuple[int, int]]) -> float:
    pairs = zip(chain, chain[1:], strict=False)
    return sum(a * d - b * c for (a, b), (c, d) in pairs) / 2


@pytest.mark.parametrize("gap", [0.05, 0.3, 0.9])
def test_outlines_enclose_as_many_cells_as_are_certified(gap: float) -> None:
    grid = outlines.framed(cells(gap), POINTS)
    found = set("".join(grid))
    for label in "01":
        chains = outlines.traced(grid, label, found - {label})
        assert all(chain[0] == chain[-1] for chain in chains)
        assert sum(map(area, chains)) == sum(line.count(label) for line in grid)


def test_cells_that_touch_at_a_corner_stay_apart_and_holes_are_cut_out() -> None:
    grid = outlines.framed("1..." + ".1.." + "..11" + "..11", 4)
    assert len(outlines.traced(grid, "1", {".", " "})) == 3
    ring = outlines.framed("....." + ".111." + ".1.1." + ".111." + ".....", 5)
    chains = outlines.traced(ring, "1", {".", " "})
    assert sorted(map(area, chains)) == [-1, 9]


def test_the_boundary_of_three_classes_is_drawn_once() -> None:
    grid = outlines.framed("001" + "002" + "222", 3)
    sides = [
        frozenset(side)
        for label in "012"
        for side in outlines.sides(grid, label, set("012") - set(map(str, range(int(label) + 1))))
    ]
    assert len(sides) == len(set(sides)) > 0


# --- in a browser ---------------------------------------------------------------------------------------------------


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    """Open an evaluation; whatever leaves the page, or goes wrong in it, fails the test at its end."""
    wrong: list[str] = []
    contexts = []

    def open_page(source: dict[str, Any], width: int = 1100, beside: Any = None, **options: Any) -> Page:
        path = tmp_path / "report.html"
        path.write_text(report.render(source, beside), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)

        def guard(route: Route) -> None:
            if route.request.url == path.as_uri():
                route.continue_()
            else:
                wrong.append(f"asked for {route.request.url}")
                route.abort()

        context.route("**/*", guard)
        page = context.new_page()
        page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def column(page: Page, name: str) -> list[str]:
    """The cells of a column of the table of samples."""
    names = page.locator("#table th").all_inner_texts()
    index = [text.strip() for text in names].index(name) + 1
    return page.locator(f"#table tbody td:nth-child({index})").all_inner_texts()


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-")) for text in texts]


def header(page: Page, name: str) -> Locator:
    return page.locator("#table th").filter(has=page.locator("button", has_text=re.compile(f"^{name}$")))


def overflow(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_the_slider_moves_the_picture_and_its_words(opened: Opened) -> None:
    page = opened(evaluation())
    slider, words = page.get_by_label("Test radius", exact=True), page.locator("#radius-words")
    shown = page.locator("#plane .radius.shown:not(.names)")
    expect(words).to_have_text(
        re.compile(r"^Test radius 0\.1: .* of the plane is certified; certified accuracy .* 80\.0 %")
    )
    assert slider.input_value() == "2"  # the radius of the run
    first = shown.locator("path").first.get_attribute("d")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(words).to_have_text(re.compile(r"^Test radius 0\.01: .*89\.0 %"))
    expect(slider).to_have_attribute("aria-valuetext", "0.01")
    assert shown.count() == 1 and shown.locator("path").first.get_attribute("d") != first
    slider.fill("3")
    expect(words).to_have_text(re.compile(r"^Test radius 0\.5: [\d.]+ % of the plane is certified\.$"))
    expect(page.locator("#plane")).to_have_attribute("aria-label", words.inner_text())
    assert page.locator("#plane .radius.shown").count() == 2


def test_columns_sort_both_ways(opened: Opened) -> None:
    page = opened(evaluation())
    expect(header(page, "Row")).to_have_attribute("aria-sort", "ascending")
    margin = header(page, "Margin")
    margin.get_by_role("button").click()
    expect(margin).to_have_attribute("aria-sort", "ascending")
    assert header(page, "Row").get_attribute("aria-sort") is None
    rising = numbers(column(page, "Margin"))
    assert rising == sorted(rising) and set(column(page, "Certified")[:20]) == {"abstained"}
    margin.get_by_role("button").press("Enter")
    expect(margin).to_have_attribute("aria-sort", "descending")
    falling = numbers(column(page, "Margin"))
    assert falling == sorted(falling, reverse=True) and falling[0] > rising[0]
    for name in ("Row", "True class", "Prediction", "Certified", "Right", "Width"):
        header(page, name).get_by_role("button").click()
        expect(header(page, name)).to_have_attribute("aria-sort", "ascending")
    assert page.locator("#table th[aria-sort]").count() == 1


def test_filters_and_their_count(opened: Opened) -> None:
    page = opened(evaluation())
    counted = page.locator("#counted")
    expect(counted).to_have_text("200 of 200 samples")
    page.get_by_label("Certified", exact=True).select_option("abstained")
    expect(counted).to_have_text("20 of 200 samples")
    assert set(column(page, "Certified")) == {"abstained"} and len(column(page, "Row")) == 20
    page.get_by_label("Right", exact=True).select_option("wrong")
    expect(counted).to_have_text("3 of 200 samples")
    assert column(page, "Row") == ["0", "70", "140"] and set(column(page, "Right")) == {"wrong"}
    page.get_by_role("button", name="Show all").click()
    expect(counted).to_have_text("200 of 200 samples")
    page.get_by_label("Prediction", exact=True).select_option("1")
    expect(counted).to_have_text("100 of 200 samples")
    assert set(column(page, "Prediction")) == {"1"}
    page.get_by_label("Row number or class").fill("17")
    expect(counted).to_have_text("6 of 200 samples")
    assert column(page, "Row") == ["17", "171", "173", "175", "177", "179"]
    page.get_by_label("Row number or class").fill("no such class")
    expect(counted).to_have_text("0 of 200 samples")
    assert page.locator("#table tbody tr").count() == 0


def test_pages_turn(opened: Opened) -> None:
    page = opened(evaluation())
    where = page.locator("#page")
    expect(where).to_have_text("page 1 of 8")
    assert column(page, "Row") == [str(row) for row in range(25)]
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    page.get_by_role("button", name="Next").click()
    expect(where).to_have_text("page 2 of 8")
    assert column(page, "Row")[0] == "25"
    page.get_by_role("button", name="Last page").click()
    assert column(page, "Row")[-1] == "199"
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.get_by_label("Certified", exact=True).select_option("abstained")
    expect(where).to_have_text("page 1 of 1")


def test_sixteen_thousand_samples_sort_at_once(opened: Opened) -> None:
    page = opened(evaluation(samples=16281))
    expect(page.locator("#counted")).to_have_text("16,281 of 16,281 samples")
    elapsed = page.evaluate(
        """() => { const start = performance.now();
        document.querySelector("th[data-key=margin] button").click(); return performance.now() - start; }"""
    )
    assert elapsed < 1000 and page.locator("#table tbody tr").count() == 25


def test_hostile_names_are_shown_as_they_are(opened: Opened) -> None:
    page = opened(with_names(HOSTILE))
    shown = " ".join(HOSTILE.split())
    assert page.title().startswith(HOSTILE[:20])
    assert " ".join(column(page, "Prediction")[1].split()) == shown
    page.get_by_label("Row number or class").fill("<B>")
    expect(page.locator("#counted")).to_have_text("115 of 200 samples")
    assert page.locator("b", has_text=re.compile("^$")).count() == 0


def test_values_are_read_under_the_pointer_and_with_keys(opened: Opened) -> None:
    page = opened(evaluation())
    figure = page.locator("figure", has_text="Accuracy over the steps")
    reading, cursor = figure.locator(".reading"), figure.get_by_role("slider")
    expect(reading).to_have_text("step 40: certified accuracy 92.0 %, nominal accuracy 96.0 %")
    cursor.focus()
    page.keyboard.press("Home")
    expect(reading).to_have_text("step 4: certified accuracy 81.2 %, nominal accuracy 81.6 %")
    expect(cursor).to_have_attribute("aria-valuetext", reading.inner_text())
    assert figure.locator(".at").count() == 2
    page.keyboard.press("ArrowRight")
    expect(reading).to_have_text(re.compile("^step 8:"))
    figure.locator(".plot").hover()
    expect(reading).to_have_text(re.compile("^step (16|20|24):"))


def test_every_control_has_a_name(opened: Opened) -> None:
    page = opened(evaluation())
    page.locator("details").evaluate_all("nodes => nodes.forEach(node => { node.open = true; })")
    controls = page.locator("button, input, select, summary, [role=slider], [role=region], [role=img], nav")
    assert controls.count() > 25
    nameless = [control.evaluate("node => node.outerHTML") for control in controls.all() if not name_of(control)]
    assert nameless == []
    levels = [
        int(level) for level in page.locator("h1, h2, h3, h4").evaluate_all("nodes => nodes.map(n => n.tagName[1])")
    ]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert [page.get_by_role(role).count() for role in ("banner", "main", "contentinfo", "navigation")] == [1, 1, 1, 1]
    identities = page.locator("[id]").evaluate_all("nodes => nodes.map(n => n.id)")
    assert len(identities) == len(set(identities))


def name_of(control: Locator) -> str:
    """The accessible name that the browser works out."""
    lines = control.aria_snapshot().splitlines() or [""]
    quoted = re.search(r'"(.+)"|^- text: (.+)', lines[0])
    return (quoted[1] or quoted[2]) if quoted else ""


@pytest.mark.parametrize(
    "source", [evaluation, regression, lambda: with_names("a" * 90), lambda: with_names("word " * 30)]
)
def test_a_phone_does_not_scroll_sideways(opened: Opened, source: Callable[[], dict[str, Any]]) -> None:
    page = opened(source(), width=360)
    assert overflow(page) <= 0
    page.locator("details.values summary").first.click()
    assert overflow(page) <= 0


def test_decisions_come_first(opened: Opened) -> None:
    """What is settled and what is open, and all of the latter one click away."""
    page = opened(evaluation())
    sections = page.locator("main section").evaluate_all("all => all.map((one) => one.id)")
    assert sections[:2] == ["result", "decisions"] and sections[-1] == "training"
    settled = "180 predictions, 26 of them wrong: nobody within the threat could have changed them."
    assert page.locator(".settled p").inner_text() == settled
    assert page.locator(".review p").inner_text() == "20 predictions, 3 of them wrong: the bounds could not decide."
    assert page.locator("#review tbody tr").count() == 12
    margins = numbers(page.locator("#review tbody td:nth-child(4)").all_inner_texts())
    assert margins == sorted(margins, reverse=True) and margins[0] <= 0
    page.locator("#all-abstained").click()
    expect(page.locator("#counted")).to_have_text("20 of 200 samples")
    cells = class_cells(page)
    assert cells == [["99", "68.6 %", "68", "14 as “1”", "17"], ["101", "85.1 %", "86", "12 as “0”", "3"]]


def class_cells(page: Page) -> list[list[str]]:
    """What stands behind the name of each class, all that its samples are divided into among it."""
    rows = [row.locator("td").all_inner_texts() for row in page.locator(".confusion tbody tr").all()]
    for samples, _, right, wrong, abstained in rows:
        parts = [right, abstained, *re.findall(r"(\d+) as ", wrong)]
        assert int(samples) == sum(map(int, parts))
    return [[cell.strip() for cell in row] for row in rows]


def of_many_classes(classes: int = 10) -> dict[str, Any]:
    """An evaluation of classes with long names, each confused with the next."""
    names = [f"carcinoma in situ of kind {number}" for number in range(classes)]
    outputs = [number / classes for number in range(classes)]
    rows = [
        {
            **{"row": row, "line": row + 2, "id": f"patient {row:06d}, second visit"},
            **{"true": names[row % classes], "label": names[(row + row % 3 // 2) % classes], "certified": row % 5 != 0},
            **{"margin": 0.25 if row % 5 else -0.25, "lower": [-value for value in outputs], "upper": outputs},
        }
        for row in range(200)
    ]
    return evaluation() | {"classes": names, "samples": rows, "plane": None}


@pytest.mark.parametrize("width", [1280, 390])
def test_a_table_of_ten_classes_fits(opened: Opened, width: int) -> None:
    """Nothing of it is cut off, and on a phone each class is a card whose cells say what they are."""
    page = opened(of_many_classes(), width=width)
    box = page.locator("#decisions .box").last
    assert overflow(page) <= 0 and box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    cells = class_cells(page)
    assert len(cells) == 10 and sum("as “carcinoma" in row[3] for row in cells) == 8
    label = page.locator(".confusion tbody td").first.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert label == ('"Samples"' if width == 390 else "none")


@pytest.mark.parametrize("width", [1280, 390])
def test_bounds_stand_in_a_row_below_their_sample(opened: Opened, width: int) -> None:
    """With ids, lines, long names and ten outputs nothing runs off, and what was opened stays so when pages turn."""
    page = opened(of_many_classes(), width=width)
    box = page.locator("#samples .box")
    page.get_by_role("button", name="Bounds of row 1", exact=True).click()
    detail = page.locator("#table tr.detail")
    expect(detail).to_have_count(1)
    assert "carcinoma in situ of kind 9" in detail.inner_text() and "−0.9 … 0.9" in detail.inner_text()
    assert detail.evaluate("row => row.previousElementSibling.cells[0].textContent") == "1"
    assert overflow(page) <= 0 and box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    page.locator("#next").click()
    expect(detail).to_have_count(0)
    page.locator("#previous").click()
    expect(detail).to_have_count(1)
    page.get_by_role("button", name="Bounds of row 1", exact=True).click()
    expect(detail).to_have_count(0)


def test_samples_are_found_by_their_line_and_id(opened: Opened) -> None:
    rows = [{**sample(row), "line": row + 2, "id": f"P-{row:03d}"} for row in range(50)]
    page = opened(evaluation(samples=50) | {"samples": rows})
    assert page.locator("#review tbody td").first.inner_text().startswith("P-0")
    assert "(line " in page.locator("#review tbody td").first.inner_text()
    page.get_by_label("Row number or class, line, id").fill("p-017")
    assert column(page, "Line") == ["19"] and column(page, "Id") == ["P-017"]


def test_a_phone_has_cards(opened: Opened) -> None:
    """Every cell of the table stands on the screen, with the name of its column."""
    for source in (evaluation(), regression()):
        page = opened(source, width=390)
        cell = page.locator("#table tbody td").last
        box = cell.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390 and overflow(page) <= 0
        name = cell.evaluate("(cell) => getComputedStyle(cell, '::before').content")
        assert name.strip('"') in ("Bounds", "Bounds and true value")


WEIGHTS = {
    "rows": [
        {"name": "age", "towards": "much", "lower": 0.5, "upper": 0.7, "plain": 0.6},
        {"name": "town=north", "towards": "much", "lower": -0.5, "upper": 0.2, "plain": -0.1},
        {"name": "<b>", "towards": "much", "lower": -0.5, "upper": -0.2, "plain": -0.3},
    ],
    "left_out": 0,
}


def test_weights_of_a_linear_model_have_certain_signs(opened: Opened) -> None:
    page = opened(evaluation(features=WEIGHTS))
    figure = page.locator("#features figure")
    assert "The sign of 2 of 3 weights is certain" in figure.locator("figcaption").inner_text()
    assert figure.locator(".bound.sure").count() == 2 and figure.locator(".bound.unsure").count() == 1
    signs = figure.locator("tbody td:last-child").all_text_contents()
    assert signs == ["+", "not certain", "−"]


def test_features_are_the_first_twelve_and_then_all(opened: Opened) -> None:
    rows = [
        {"name": f"column {k}", "towards": "", "lower": 1.0 - k, "upper": 9.0 - k, "plain": 5.0 - k} for k in range(30)
    ]
    page = opened(evaluation(features={"rows": rows, "left_out": 3}))
    first, others = page.locator("#features figure.plotted svg.chart"), page.locator("#features details.others")
    assert first.locator(".bound").count() == 12 and others.locator(".bound").count() == 18
    expect(others.locator("svg.chart")).to_be_hidden()
    others.locator("summary", has_text="18 more features").click()
    expect(others.locator("svg.chart")).to_be_visible()
    ticks = [chart.locator("text.tick").all_text_contents() for chart in (first, others)]
    assert ticks[0] == ticks[1]
    caption = page.locator("#features figcaption").inner_text()
    assert "of 30 weights" in caption and "12 largest" in caption and "3 smallest are left out" in caption
    assert page.locator("#features tbody tr").count() == 30


AUDIT = {
    "audited": 20,
    "unowned_share": 0.25,
    "columns": [{"column": "age", "share": 0.75}, {"column": "hours", "share": 0.25}],
    "checklist": {
        "question": "Which rows to check so that more predictions are settled?",
        "claim": "If these 2 rows prove as recorded, 3 more predictions are certain.",
        "rows": [{"line": 17, "sample": 3, "share": 0.2}, {"sample": 8, "id": "A-8", "share": 0.1}],
    },
}
UNLIKELY = {"question": "Which rows have a label that is unlikely?", "score": "The probability that a fit gives."}


def test_an_audit_has_a_section_of_its_own(opened: Opened) -> None:
    assert "What to check next" not in report.render(evaluation())
    page = report.render(evaluation(), {"audit": AUDIT})
    assert "3 more predictions are certain" in page and "age 75.0\u00a0%" in page
    assert "line 17" in page and "A-8, sample 8" in page and 'href="#audit"' in page and ">Missing<" not in page


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_to_check_say_what_is_missing_in_them(opened: Opened, width: int) -> None:
    rows = [*AUDIT["checklist"]["rows"], {"line": 9, "sample": 1, "share": 0.3, "missing": ["Einkommen", "Beruf"]}]
    listed = {**AUDIT["checklist"], "claim": "A forecast.", "rows": rows}
    page = opened(evaluation(), width=width, beside={"audit": {**AUDIT, "audited": 1, "checklist": listed}})
    table = page.locator("#audit table")
    assert table.locator("th").all_inner_texts()[2] == "Missing"
    assert table.locator("tbody td:nth-child(3)").all_inner_texts() == ["", "", "Einkommen, Beruf"]
    expect(page.locator("#audit .lead")).to_contain_text("What 1 prediction leans on")
    assert overflow(page) <= 0


@pytest.mark.parametrize("width", [1280, 390])
def test_each_list_of_an_audit_stands_under_its_question(opened: Opened, width: int) -> None:
    """Rows whose label is unlikely are another list than those whose checking settles predictions."""
    rows = [
        {"line": 9, "id": f"K-{k}", "label": "versicolor", "probability": k / 100, "likely": "nein", "recorded": {}}
        for k in range(30)
    ]
    page = opened(evaluation(), width=width, beside={"audit": {**AUDIT, "suspects": {**UNLIKELY, "rows": rows}}})
    asked = [AUDIT["checklist"]["question"], UNLIKELY["question"]]
    assert page.locator("#audit h3").all_inner_texts() == asked
    first, second = page.locator("#audit table").all()
    assert first.locator("tbody tr").count() == 2 and second.locator("tbody tr").count() == 20
    assert second.locator("tbody tr").nth(3).locator("td").all_inner_texts() == [
        "K-3, line 9",
        "versicolor",
        "nein",
        "3.0\u00a0%",
    ]
    box = second.locator("xpath=..")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")  # nothing runs off a phone
    expect(page.locator("#audit")).to_contain_text("10 more are in audit.json")
    expect(page.locator("#audit")).to_contain_text("certifies nothing")
    assert overflow(page) <= 0


def test_unlikely_values_of_a_regression() -> None:
    rows = [{"sample": 4, "value": 90.0, "expected": 12.5, "deviations": 7.25, "recorded": {}}]
    page = report.render(evaluation(), {"audit": {**AUDIT, "suspects": {**UNLIKELY, "rows": rows}}})
    assert "Deviations<" in page and ">90<" in page and ">12.5<" in page and ">7.25<" in page
    assert UNLIKELY["question"] not in report.render(evaluation(), {"audit": AUDIT})


def voted(rows: int = 60) -> dict[str, Any]:
    """An evaluation of members that vote: samples have votes and what those withstand, and no bounds."""
    no_bounds = {"margin": None, "lower": [], "upper": []}
    given = [
        {**row, **no_bounds, "votes": 3 + row["row"] % 3, "withstands": row["row"] % 7}
        for row in map(sample, range(rows))
    ]
    given[0]["withstands"] = None
    return evaluation(samples=rows) | {"samples": given, "plane": None, "radii": [], "steps": [], "layers": []}


def test_votes_are_shown_with_what_they_withstand(opened: Opened) -> None:
    page = opened(voted())
    heads = page.locator("#table th").all_inner_texts()
    assert [head.strip() for head in heads][-2:] == ["Votes", "Withstands"] and not any(
        "Bounds" in head for head in heads
    )
    page.locator("#table th button", has_text="Withstands").click()
    page.locator("#table th button", has_text="Withstands").click()
    shown = page.locator("#table tbody td:last-child").all_inner_texts()
    assert shown[:3] == ["6", "6", "6"]
    listed = page.locator("#review tbody td:last-child").all_inner_texts()
    assert page.locator("#review th").last.inner_text() == "Withstands" and listed[-1] == "nothing"
    assert listed[:-1] == sorted(listed[:-1], reverse=True)
    expect(page.locator("#samples .lead")).to_contain_text("can be changed without changing it")


def test_a_table_with_lines_and_ids_fits_a_screen(opened: Opened) -> None:
    """Nothing of it is cut off, and a true value beyond all bounds is drawn within the axis."""
    places = [{"line": 1000 + number, "id": f"plymouth satellite {number}"} for number in range(200)]
    for given in (evaluation(), regression()):
        rows = [{**row, **place} for row, place in zip(given["samples"], places, strict=False)]
        if given["task"] == "regression":
            rows = [{**row, "true": 3.0 * (row["upper"][0] + 1.0)} for row in rows]
        page = opened({**given, "samples": rows}, width=1280)
        box = page.locator("#samples .box")
        assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
        for mark in page.locator("#table .truth").all()[:5]:
            assert 2 < float(mark.get_attribute("d")[1:].split(" ")[0]) < 118  # type: ignore[index]


def test_flags_and_their_values_stay_together() -> None:
    words = report.page.flags("Try --steps 1 (or --lr 0.5), or <b> and fullcert audit.")
    one, other = ('<span class="flag">--steps 1</span>', '<span class="flag">--lr 0.5</span>')
    assert str(words) == f"Try {one} (or {other}), or &lt;b&gt; and fullcert audit."


def curve(unit: str = "k", attacked: bool = True) -> dict[str, Any]:
    """What predictions withstand, as a sweep that was attacked at 2 and at 8 writes it."""
    values, shares = ([0, 1, 2, 3, 8], [0.9, 0.8, 0.8, 0.55, 0.2])
    left = dict(zip(values, [0.9, 0.9, 0.85, 0.85, 0.4], strict=True))
    points = [
        {"value": value if unit == "k" else value / 10, "certified_accuracy": share, "certified_robustness": share}
        | ({"attacked_accuracy": left[value]} if attacked else {})
        for value, share in zip(values, shares, strict=True)
    ]
    return {"unit": unit, "nominal_accuracy": 0.9, "samples": 200, "points": points}


@pytest.mark.parametrize("width", [1280, 390])
def test_what_predictions_withstand_stands_after_the_decisions(opened: Opened, width: int) -> None:
    page = opened(evaluation(), width=width, beside={"curve": curve()})
    sections = page.locator("section").evaluate_all("all => all.map(section => section.id)")
    links = page.locator("nav a").evaluate_all("all => all.map(link => link.hash.slice(1))")
    assert links == [name for name in sections if name in links] and links.index("withstands") == 2
    chart = page.locator("#withstands svg.chart")
    expect(chart).to_have_accessible_name(re.compile("accuracy under attack: 90.0 % at changed training samples 0"))
    assert chart.locator(".line").count() == 3 and chart.locator(".mark.attacked").count() == 1
    ticks = chart.locator("text.tick").all_text_contents()
    assert not [tick for tick in ticks if "." in tick and "%" not in tick]  # nobody changes half a sample
    colours = chart.locator(".line").evaluate_all("all => all.map(line => getComputedStyle(line).stroke)")
    assert len(set(colours)) == 3 and overflow(page) <= 0
    box = chart.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width


def test_between_attacks_nothing_more_is_known() -> None:
    """Certified between two values is that of the larger one, attacked that of the smaller one."""
    chart = report.page.withstood_chart(curve())
    assert chart is not None
    rows = {row.cells[0]: row.cells[1:] for row in chart.rows}
    assert rows["4"][0] == "20.0 %" and rows["7"][2] == "85.0 %" and rows["8"] == ("20.0 %", "90.0 %", "40.0 %")
    assert "under attack" not in report.render(evaluation(), {"curve": curve(attacked=False)})
    assert report.page.withstood_chart(curve("epsilon")) is not None


def test_cards_of_a_phone_carry_line_and_id(opened: Opened) -> None:
    rows = [{**row, "line": row["row"] + 2, "id": f"K{row['row']:04d}"} for row in evaluation()["samples"]]
    page = opened({**evaluation(), "samples": rows}, width=390)
    first = page.locator("#table tbody tr").first
    assert first.locator("td").nth(1).evaluate("cell => getComputedStyle(cell).display") == "grid"
    expect(first).to_contain_text("K0000")
    assert overflow(page) <= 0
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 without its margins
    page.emulate_media(media="print")
    assert overflow(page) <= 0


def test_a_regression_lists_the_widest_bounds(opened: Opened) -> None:
    page = opened(regression())
    expect(page.locator("#decisions")).to_contain_text("out of their bounds")
    widths = numbers(page.locator("#review tbody td:nth-child(4)").all_inner_texts())
    assert widths == sorted(widths, reverse=True) and len(widths) == 12


@pytest.mark.parametrize("start", range(len(EPSILONS)))
def test_barriers_are_drawn_at_the_radius_of_the_run(start: int) -> None:
    """However thin the band is there: the claim beside the picture is about this radius and no other."""
    one = evaluation(plane={**evaluation()["plane"], "start": start})
    drawn = barriers.drawn(one)
    assert drawn is not None and drawn.startswith("<svg ") and "prefers-color-scheme: dark" in drawn
    assert f"test radius {number(EPSILONS[start])}:" in drawn and barriers.drawn(evaluation(plane=None)) is None
    ElementTree.fromstring(drawn)
    assert f'step="1" value="{start}"' in report.render(one)


def test_the_curve_says_on_which_samples_it_was_measured() -> None:
    page = report.render(evaluation(measured={"samples": 80, "split": "validation"}))
    assert "Measured on 80 validation samples while it trained" in page


def test_regression_has_a_table_of_its_own(opened: Opened) -> None:
    page = opened(regression())
    assert column(page, "Width")[0] == "2.58" and column(page, "Lower")[0] == "0.428"
    header(page, "Width").get_by_role("button").click()
    header(page, "Width").get_by_role("button").click()
    assert column(page, "Row")[0] == "39"
    expect(page.get_by_label("Right", exact=True)).to_have_count(0)


def test_dark_mode_is_dark_and_print_is_light(opened: Opened) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = opened(evaluation(), color_scheme="light"), opened(evaluation(), color_scheme="dark")
    assert sum(channels(light.evaluate(background))) > 700 and sum(channels(dark.evaluate(background))) < 120
    dark.emulate_media(media="print")
    assert channels(dark.evaluate(background)) == [255, 255, 255]
    assert sum(channels(dark.evaluate("getComputedStyle(document.body).color"))) < 120


def channels(colour: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", colour)[:3]]


def test_paper_has_no_controls_and_few_rows(opened: Opened) -> None:
    page = opened(evaluation())
    page.emulate_media(media="print")
    for control in page.locator("input, select, nav, .paging button, .filters button, [role=slider], summary").all():
        expect(control).to_be_hidden()
    expect(page.locator("#printed")).to_be_visible()
    expect(page.locator("#printed")).to_contain_text("25 of 200 samples are printed")
    expect(page.locator(".claim")).to_be_visible()


A4 = {"width": 680, "height": 1002}  # without its margins


@pytest.mark.parametrize("source", [evaluation, regression, of_many_classes])
def test_paper_has_no_large_gaps(opened: Opened, source: Callable[[], dict[str, Any]]) -> None:
    """Whatever cannot be broken is lower than a third of a page, and that is the largest gap before it."""
    many = [{"name": f"column {k}", "towards": "", "lower": k, "upper": k + 1.0, "plain": k + 0.5} for k in range(30)]
    page = opened(source() | {"features": {"rows": many, "left_out": 0}}, beside={"curve": curve(), "audit": AUDIT})
    page.set_viewport_size(A4)
    page.emulate_media(media="print")
    heights = page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter((one) => getComputedStyle(one).breakInside === "avoid")
        .map((one) => [one.tagName + "." + one.className, one.getBoundingClientRect().height])"""
    )
    assert len(heights) > 10 and [one for one in heights if one[1] > A4["height"] / 3] == []
    assert overflow(page) <= 0
    expect(page.locator("#table th", has_text="Bounds").last).to_be_hidden() if source is of_many_classes else None


def test_without_a_script_only_the_table_is_missing(opened: Opened) -> None:
    page = opened(evaluation(), java_script_enabled=False)
    expect(page.locator(".claim")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Accuracy over the steps"))).to_be_visible()
    expect(page.locator("#plane .radius.shown .region").first).to_be_visible()
    expect(page.get_by_text("needs a script")).to_be_visible()
    for control in page.locator("input, select, button").all():
        expect(control).to_be_hidden()


def test_a_void_run_and_an_empty_one_open_without_errors(opened: Opened) -> None:
    rows = [{**sample(row), "certified": False, "margin": None, "lower": [], "upper": []} for row in range(5)]
    void = counts(5, 0, void_at_step=3) | {"samples": rows}
    plane = void["plane"] | {"certified": ["." * POINTS**2] * len(EPSILONS)}
    page = opened(void | {"plane": plane})
    header(page, "Margin").get_by_role("button").click()
    assert column(page, "Margin") == ["–"] * 5 and page.locator(".region.class0:visible").count() == 1  # the legend's
    page = opened(evaluation(samples=0, plane=None, radii=[], steps=[], layers=[], details=[]))
    expect(page.locator("#counted")).to_have_text("0 of 0 samples")


# --- colours --------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    digits = colour if len(colour) == 6 else "".join(digit * 2 for digit in colour)
    values = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, second: str) -> float:
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_text_has_the_contrast_of_level_aa(mode: int) -> None:
    found = re.findall(r"--([\w-]+): #([0-9a-f]{3,6});", page.source("report.css").split("*, ::before")[0])
    half = len(found) // 2
    colours = dict(found[:half] if mode == 0 else found[half:])
    for paper in ("paper", "raised"):
        for text in ("ink", "quiet", "certified", "nominal"):
            assert contrast(colours[text], colours[paper]) >= 4.5, (text, paper)
        for kind in range(8):
            assert contrast(colours[f"class{kind}"], colours[paper]) >= 3, (kind, paper)
    assert contrast(colours["alert"], colours["alert-paper"]) >= 4.5
    assert contrast(colours["ink"], colours["alert-paper"]) >= 7


def test_what_a_result_is_held_against_is_not_flattering() -> None:
    """The share of the majority is rounded up, and the error of the median down."""
    made = evaluation()
    made["headline"] |= {"majority_accuracy": 0.50001, "median_mean_absolute_error": 1.2399}
    figures = {figure.name: figure.value for figure in claims.key_figures(made)}
    assert (figures["Majority"], figures["Median"]) == ("50.1 %", "1.23")


def test_a_flag_is_kept_together() -> None:
    threat = evaluation()["threat"] | {"formal": "--tolerance age=1 --flip-labels 2"}
    page = report.render(evaluation(threat=threat))
    assert '<span class="flag">--tolerance age=1</span> <span class="flag">--flip-labels 2</span>' in page
