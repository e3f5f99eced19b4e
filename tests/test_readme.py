"""What the README shows runs in order as printed, and its set-up is two commands."""

import json
import re
import shlex
import tomllib
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

import dpstats as dp
from dpstats.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|)\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder in which all blocks of Python were run, what they named, and their fits."""
    folder = tmp_path_factory.mktemp("readme")
    fits: list[Any] = []
    original = dp.models.model.Model.fit

    def kept(*args: Any, **kwargs: Any) -> Any:
        fits.append(original(*args, **kwargs))
        return fits[-1]

    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.errors.FeasibilityWarning)
        patch.chdir(folder)
        patch.setattr(dp.models.model.Model, "fit", kept)
        for language, block in BLOCKS:
            if language == "python":
                exec(block, names)
        plt.close("all")
    return folder, names, fits


def test_every_block_of_python_runs_in_order_as_printed(ran, monkeypatch):
    folder, names, fits = ran
    monkeypatch.chdir(folder)
    asked = Counter(fit.plan.privacy.trust for fit in fits)
    assert set(asked) == {"central", "label-only", "local", "federated"}
    assert {"describe", "quantile", "crosstab", "logit", "glm", "mixture_ols"} < {
        fit.plan.model for fit in fits
    }
    chosen = [fit for fit in fits if fit.plan.options.get("sparsity")]
    assert [fit.has_inference for fit in chosen] == [False, True]
    true = {f"g{j}" for j in range(10)}
    assert len(true.intersection(chosen[0].selected)) >= 9
    assert names["fit"].plan.n == 20_190
    assert names["collector"].accepted == 1
    assert len(names["ledger"].entries) == 3
    assert (folder / "fit.json").exists()


def test_the_shell_runs_as_printed(ran, monkeypatch, capsys):
    folder, names, _ = ran
    monkeypatch.chdir(folder)
    names["df"].to_parquet("data.parquet")
    (shell,) = (block for language, block in BLOCKS if not language and "ledger show" in block)
    for line in shell.splitlines():
        program, *words = shlex.split(line)
        assert program == "dpstats"
        if ">" in words:
            assert main(words[: words.index(">")]) == 0
            template = dp.Schema.from_dict(json.loads(capsys.readouterr().out))
            assert list(template) == list(names["df"])
            names["schema"].save(words[-1])  # filled by hand
        else:
            assert main(words) == 0
    assert "1 charge" in capsys.readouterr().out
    assert dp.load("report.json").plan.n == 20_000
    assert "<svg" in Path("report.html").read_text(encoding="utf-8")


def test_what_a_summary_prints_is_shown(ran, monkeypatch):
    monkeypatch.chdir(ran[0])
    printed = str(ran[1]["fit"].summary())
    (shown,) = (block for language, block in BLOCKS if not language and "priv. share" in block)
    heads = [
        [line.split() for line in text.splitlines() if "priv. share" in line]
        for text in (printed, shown)
    ]
    assert heads[0] == heads[1]
    for label in ("Trust model: central", "Neighbours:  replace-one", "Error bound: "):
        assert label in printed
        assert label in shown


def test_links_of_the_readme_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_links_of_the_readme_hold_on_an_index_page_after_publication():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text[text.index("# [project.urls]") : text.index("[dependency-groups]")]
    settings = tomllib.loads(re.sub("^# ?", "", block, flags=re.MULTILINE))
    assert set(settings["project"]["urls"]) >= {"Source", "Documentation"}
    page = README
    hooks = settings["tool"]["hatch"]["metadata"]["hooks"]
    for change in hooks["fancy-pypi-readme"]["substitutions"]:
        page = re.sub(change["pattern"], change["replacement"], page)
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert "https://ADDRESS/blob/main/docs/privacy_promise.md" in links
    assert all(link.startswith("https://") for link in links)


def test_set_up_is_two_commands():
    commands = re.findall(r"^python3 -m pip install .*$", README, re.MULTILINE)
    assert commands == [
        "python3 -m pip install uv && uv run dpstats demo",
        "python3 -m pip install uv && uv run pytest",
    ]
