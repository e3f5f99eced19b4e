"""What the README shows runs as written, and its set-up is two commands."""

import re
from pathlib import Path

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_first_table_and_the_tour_run_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, declarations, tour = BLOCKS
    names: dict[str, object] = {}
    exec(first, names)
    assert "lncoins" in capsys.readouterr().out
    names["new_rows"] = names["df"].head(3)
    exec(tour, names)
    assert Path("fit.json").exists()
    names["df"] = names["df"].head(0)
    exec(declarations.replace("dp.Schema(...,", "dp.Schema(schema,"), names)


def test_set_up_is_two_commands():
    commands = re.findall(r"^python3 -m pip install .*$", README, re.MULTILINE)
    assert commands == [
        "python3 -m pip install uv && uv run dpstats demo",
        "python3 -m pip install uv && uv run pytest",
    ]
