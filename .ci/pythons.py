"""The wheel works with every Python of this machine, and with the lowest versions it allows.

``uv run .ci/pythons.py`` builds it, installs it without the checkout for each Python, runs
`installed.py` there, and then what the README shows with the newest Python: the demo and the tests.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
UV = os.environ.get("UV", "uv")
MINORS = range(11, 15)  # of Python 3
FEWEST = 2  # Pythons; with one, nothing would be known of the others


def pythons() -> dict[int, Path]:
    """Paths of the Pythons that are there, by minor version; nothing is downloaded."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [os.environ["PATH"], *map(str, sorted(root.glob("versions/*/bin")))]
    listed = subprocess.run(
        [UV, "python", "list", "--only-installed", "--output-format=json"],
        env={**os.environ, "PATH": os.pathsep.join(folders)},
        check=True,
        capture_output=True,
    )
    found: dict[int, Path] = {}
    for each in json.loads(listed.stdout):
        release = each["version"].replace(".", "").isdecimal()  # and no 3.14.0rc1
        usual = (each["implementation"], each["variant"]) == ("cpython", "default")
        minor = each["version_parts"]["minor"]
        if release and usual and each["version_parts"]["major"] == 3 and minor in MINORS:
            found.setdefault(minor, Path(each["path"]))
    return dict(sorted(found.items()))


def run(*words: str | Path, cwd: Path = HERE.parent, **settings: str) -> str:
    """The last line that a command prints; all of them are shown if it fails."""
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nFAILED: {' '.join(map(str, words))}")
    return done.stdout.strip().rpartition("\n")[2]


def check(python: Path, wheel: Path, folder: Path, *, lowest: bool = False) -> None:
    """The wheel in a clean environment of its own."""
    run(UV, "venv", "--clear", "--python", python, folder)
    inside = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install = (UV, "pip", "install", "--python", inside)
    if lowest:
        oldest = ("--resolution", "lowest-direct", "-r", HERE.parent / "pyproject.toml")
        run(*install, *oldest, "--extra", "signed")
        run(*install, "--no-deps", wheel)
    else:
        run(*install, wheel)
        run(inside, HERE / "installed.py", cwd=folder)
        run(*install, f"dpstats[signed] @ {wheel.as_uri()}")
    run(inside, HERE / "installed.py", *([] if lowest else ["signed"]), cwd=folder)


def main() -> None:
    """All of it."""
    found = pythons()
    print("Pythons:", ", ".join(f"3.{minor} ({path})" for minor, path in found.items()), flush=True)
    if len(found) < FEWEST:
        sys.exit(f"FAILED: {FEWEST} of Python 3.{MINORS[0]} to 3.{MINORS[-1]} are needed.")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        run(UV, "build", "--wheel", "--out-dir", folder / "dist")
        (wheel,) = (folder / "dist").glob("*.whl")
        for minor, python in found.items():
            check(python, wheel, folder / f"3.{minor}")
            print(f"passed: the wheel with Python 3.{minor}", flush=True)
        check(found[min(found)], wheel, folder / "lowest", lowest=True)
        print("passed: the wheel with the lowest versions", flush=True)
        newest = max(found)
        if newest == sys.version_info.minor:
            return  # the tests ran with it
        settings = {"UV_PROJECT_ENVIRONMENT": str(folder / "newest")}
        run(UV, "run", "--python", found[newest], "dpstats", "demo", **settings)
        print(f"passed: the demo with Python 3.{newest}", flush=True)
        told = run(UV, "run", "--python", found[newest], "pytest", **settings)
        print(f"passed: the tests with Python 3.{newest}: {told}", flush=True)


if __name__ == "__main__":
    os.environ["UV_PYTHON_DOWNLOADS"] = "never"
    main()
