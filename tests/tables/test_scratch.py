"""Scratch files hold private rows: they have no name, nobody else may open them, and they fit."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpstats.errors import DataError, OptionError
from dpstats.tables import scratch

WANTED = {
    "x": ((1000, 3), np.dtype(np.float32)),
    "keep": ((1000,), np.dtype(np.bool_)),
    "y": ((1000,), np.dtype(np.float64)),
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Mode and number of names of each scratch file, as it is when it was just made."""
    found = []
    plain = tempfile.TemporaryFile

    def noting(*args: Any, **kwargs: Any) -> Any:
        file = plain(*args, **kwargs)
        status = os.fstat(file.fileno())
        found.append((stat.S_IMODE(status.st_mode), status.st_nlink))
        return file

    monkeypatch.setattr(tempfile, "TemporaryFile", noting)
    return found


def in_use(folder: Path) -> bool:
    return str(folder) in Path("/proc/self/maps").read_text()


def test_arrays_on_disk_are_arrays_and_their_file_has_no_name(
    tmp_path: Path, opened: list[tuple[int, int]]
) -> None:
    made = scratch.arrays(tmp_path, WANTED)
    for name, (shape, dtype) in WANTED.items():
        assert (made[name].shape, made[name].dtype) == (shape, dtype)
        assert not made[name].any()
    made["x"][:], made["y"][:] = 1.5, np.arange(1000)
    assert (made["x"] == 1.5).all()
    assert not made["keep"].any()  # the others are not written over
    assert opened == [(0o600, 0)]
    assert not list(tmp_path.iterdir())
    assert in_use(tmp_path)


def test_the_file_is_gone_with_the_last_array(tmp_path: Path) -> None:
    made = scratch.arrays(tmp_path, WANTED)
    last = made["x"][3:5]
    del made
    assert in_use(tmp_path)
    del last
    assert not in_use(tmp_path)


def test_pages_that_are_let_go_are_not_resident_and_keep_what_was_written(tmp_path: Path) -> None:
    def resident() -> int:
        found = Path("/proc/self/smaps").read_text().split(str(tmp_path))[1:]
        return sum(int(each.split("Rss:")[1].split()[0]) for each in found)  # KiB

    made = scratch.arrays(tmp_path, {"x": ((1 << 20,), np.dtype(np.float32))})
    made["x"][:] = 1.5
    assert resident() >= 4096
    scratch.let_go()
    assert resident() == 0
    assert (made["x"] == 1.5).all()


def test_a_folder_that_is_too_small_says_so_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"need 9,313,225\.75 GiB .* Nothing was charged"):
        scratch.check_space(tmp_path, 10**16)
    scratch.check_space(tmp_path, 1)


def test_a_disk_that_is_full_meanwhile_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match="a charge stands"):
        scratch.arrays(tmp_path, WANTED)


def test_the_folder_is_the_one_given_else_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other := tmp_path / "other").mkdir()
    monkeypatch.setenv(scratch.VARIABLE, str(other))
    assert scratch.scratch_folder(tmp_path) == tmp_path
    assert scratch.scratch_folder(None) == other
    monkeypatch.delenv(scratch.VARIABLE)
    assert scratch.scratch_folder(None).is_dir()
    for wrong in (tmp_path / "none", 3):
        with pytest.raises(OptionError, match="folder"):
            scratch.scratch_folder(wrong)  # type: ignore[arg-type]
