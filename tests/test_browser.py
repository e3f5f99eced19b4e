"""The built site and the HTML report, as a browser shows them: wide and narrow, light and dark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

import dpstats as dp
from dpstats.results.report import write_report

webdriver = pytest.importorskip("selenium.webdriver")
ROOT = Path(__file__).resolve().parents[1]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
SCREENS = [(1440, "light"), (390, "dark"), (390, "light"), (1440, "dark")]
# Whether the page is wider than its screen, and which pictures have no words.
OVERFLOW = """
const width = document.documentElement.clientWidth;
return [document.documentElement.scrollWidth > width + 1,
        [...document.images].filter(image => !image.alt && image.getBoundingClientRect().width > 40)
            .map(image => image.src),
        [...document.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().width > 200
            && !svg.getAttribute("aria-label") && !svg.closest("mjx-container")).length]
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="no chromium with its chromedriver here"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    options.binary_location = BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def faults(browser: Any, page: Path, width: int, mode: str) -> list[str]:
    """What is wrong with a page on one screen."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 800}
    scheme = {"features": [{"name": "prefers-color-scheme", "value": mode}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    browser.get(page.as_uri())
    wide, images, drawings = browser.execute_script(OVERFLOW)
    errors = [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    found = [*errors, *(f"no alternative text: {image}" for image in images)]
    found += ["wider than the screen"] * wide + ["a drawing without words"] * bool(drawings)
    return [f"{page.name}, {width}, {mode}: {each}" for each in found]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("reports")
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 70, 5000)
    data = {"age": age, "plan": rng.choice(["free", "25"], 5000), "visits": rng.poisson(age / 20)}
    schema = dp.Schema(
        age=dp.Numeric(0, 70), plan=dp.Categorical(["free", "25"]), visits=dp.Numeric(0, 80)
    )
    models = {
        "ols": dp.ols("visits ~ age + C(plan)", data, schema),
        "histogram": dp.histogram("age", data, schema),
        "crosstab": dp.crosstab(
            "plan", "plan2", data | {"plan2": data["plan"]}, dp.Schema(schema, plan2=schema["plan"])
        ),
        "mixture": dp.gaussian_mixture("~ age + visits", data, schema, components=2),
    }
    for name, model in models.items():
        write_report(model.fit(dp.Central(1.0, 1e-6)), folder / f"{name}.html")
    return sorted(folder.glob("*.html"))


@pytest.mark.parametrize(("width", "mode"), SCREENS)
def test_a_report_fits_every_screen(browser: Any, reports: list[Path], width: int, mode: str):
    assert [f for page in reports for f in faults(browser, page, width, mode)] == []


def test_a_report_that_does_not_fit_is_found(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text('<div style="width: 3000px">x</div><script>missing()</script>')
    found = " ".join(faults(browser, page, 390, "light"))
    assert "wider than the screen" in found
    assert "missing is not defined" in found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, without running what it shows."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-D", "nb_execution_mode=off"]
    subprocess.run(
        [*command, str(ROOT / "docs"), str(folder)], check=True, capture_output=True, cwd=ROOT
    )
    return folder


@pytest.mark.parametrize(("width", "mode"), SCREENS[:2])
def test_the_site_fits_every_screen(browser: Any, site: Path, width: int, mode: str) -> None:
    pages = [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]
    assert len(pages) > 40
    assert [f for page in pages for f in faults(browser, page, width, mode)] == []


def test_links_of_the_site_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: set(re.findall(r'id="([^"]+)"', text)) for page, text in texts.items()}
    broken = []
    for page, text in texts.items():
        loaded = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]*)"', text)
        broken += [(page.name, f"loads {url}") for url in loaded]
        for link in set(re.findall(r'<a [^>]*href="([^"]*)"', text)):
            if re.match(r"[a-z]+:", link) or link == "#":
                continue
            path, _, anchor = unquote(link).partition("#")
            target = Path(os.path.normpath(page.parent / path)) if path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and anchor not in anchors.get(target, {anchor})):
                broken.append((page.name, link))
    assert broken == []
