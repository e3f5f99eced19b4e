"""Only what the whitelist names is written, and what is read equals what was."""

import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest

from dpstats.accounting import Ledger
from dpstats.design import DeclaredDesign, design_from_dict
from dpstats.errors import OptionError, SchemaError
from dpstats.privacy import Central, Federated, LabelOnly, Local
from dpstats.results import Released as Results
from dpstats.results import released
from dpstats.results.archive import encode, privacy_from_dict, privacy_to_dict
from dpstats.stored import plain_json
from tests.results.cases import frame, make


@pytest.fixture
def fit():
    ledger = Ledger.memory(3.0, 1e-6)
    released = {"scale": 0.1, "clip": np.inf, "steps": [1, 2], "kind": "quantile", "ok": True}
    return make(ledger=ledger.state(), released=released)[0]


def test_a_saved_result_is_read_back_equal(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    again = released.load(tmp_path / "fit.json")
    assert again == fit
    new = frame(seed=3, n=5)
    np.testing.assert_array_equal(again.predict(new), fit.predict(new))
    assert str(again.t_test("age = 0")) == str(fit.t_test("age = 0"))
    assert again.privacy == fit.privacy
    assert again.error_bound.to_frame().equals(fit.error_bound.to_frame())
    assert again.plan == fit.plan
    assert again.cite("bibtex") == fit.cite("bibtex")


def test_results_with_other_numbers_are_unequal(fit):
    assert fit != make()[0]
    assert fit != "fit"


def test_pickles_and_copies_go_through_the_whitelist(fit):
    for other in (pickle.loads(pickle.dumps(fit)), copy.deepcopy(fit)):
        assert other == fit
    assert fit.to_json().encode()[:40] in pickle.dumps(fit)


def test_the_file_is_strict_json_with_a_version(fit):
    data = json.loads(fit.to_json(), parse_constant=pytest.fail)
    assert (data["format"], data["version"]) == ("dpstats.results", 2)
    assert data["privacy_status"] == "private"
    assert data["privacy"]["ledger"]["name"] == "in memory"


def test_a_result_without_what_its_ledger_was_asked_is_read(fit):
    """Earlier versions did not record it."""
    data = fit.to_dict()
    for name in ("asked", "another", "reproducible"):
        del data["privacy"]["ledger"][name]
    ledger = Results.from_dict(data).privacy.ledger
    assert (ledger.asked, ledger.another, ledger.reproducible) == (None, None, 0)
    assert ledger.sentence().endswith("ceiling (3, 1e-06).")


def test_a_save_that_fails_leaves_the_file_that_was_there(fit, tmp_path, monkeypatch):
    path = tmp_path / "fit.json"
    fit.save(path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        fit.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["fit.json"]


def test_unknown_attributes_are_not_written(fit):
    before = fit.to_json()
    object.__setattr__(fit, "rows", [1.0, 2.0])
    object.__setattr__(fit.plan, "rows", [1.0, 2.0])
    object.__setattr__(fit.estimate, "rows", [1.0, 2.0])
    assert fit.to_json() == before


@pytest.mark.parametrize("room", ["plan", "estimate", "error_bound", "privacy"])
def test_unknown_fields_are_not_read(fit, room):
    data = fit.to_dict()
    data[room] = {**data[room], "rows": [1.0]}
    with pytest.raises(OptionError, match="rows"):
        Results.from_dict(data)


@pytest.mark.parametrize("change", [{"format": "other"}, {"version": 3}, {"version": 0}])
def test_another_format_or_a_later_version_is_refused(fit, change):
    with pytest.raises(OptionError, match="up to version 2"):
        Results.from_dict({**fit.to_dict(), **change})


def test_an_unknown_trust_model_or_event_is_refused(fit):
    data = fit.to_dict()
    data["plan"]["privacy"]["trust"] = "blind"
    with pytest.raises(OptionError, match="'blind'"):
        Results.from_dict(data)


def test_an_error_about_columns_is_no_copy_of_them(fit):
    data = fit.to_dict()
    data["design"] = {**data["design"], "design_names": ["x" * 5_000, *["y"] * 5_000]}
    with pytest.raises(SchemaError, match=r"its columns were \['x{10}") as error:
        Results.from_dict(data)
    assert len(str(error.value)) < 800


def test_what_is_no_number_is_not_written():
    with pytest.raises(OptionError, match="A object may not be written"):
        encode({"model": object()})


@pytest.mark.parametrize("value", [0.1, 3, "a", None, True, (1.0, 2.0), {"a": (1, None)}])
def test_values_survive_the_round_trip(value):
    assert plain_json(json.loads(json.dumps(encode(value)))) == value


def test_numbers_that_json_lacks_survive():
    values = np.array([np.inf, -np.inf, np.nan, 0.1 + 0.2])
    np.testing.assert_array_equal(plain_json(json.loads(json.dumps(encode(values)))), values)


@pytest.mark.parametrize(
    "privacy",
    [
        Central(1.0, 1e-6, neighbors="add-remove", rows=10, large_delta=True),
        Local(2.0),
        LabelOnly(1.0, 1e-5, curator=True),
        Federated(1.0, 1e-6, target="north"),
    ],
)
def test_every_guarantee_survives_the_round_trip(privacy):
    assert privacy_from_dict(json.loads(json.dumps(privacy_to_dict(privacy)))) == privacy


def test_the_ledger_s_folder_is_not_published(tmp_path):
    (tmp_path / "secret-folder").mkdir()
    ledger = Ledger.open(tmp_path / "secret-folder" / "x.ledger", 3.0, 1e-6)
    fit, _ = make(ledger=ledger.state())
    assert fit.privacy.ledger.name == "x.ledger"
    assert "secret-folder" not in fit.to_json()
    assert dataclasses.asdict(fit.privacy.ledger)["persistent"]


@pytest.mark.parametrize("names", [None, ["const", "a", "b"]])
def test_a_design_of_arrays_survives_the_round_trip(names):
    design = DeclaredDesign.from_arrays(
        3, {"exog": [(1, 1), (-1, 1), (0, 2)], "endog": (-6, 6)}, names=names
    )
    again = design_from_dict(json.loads(json.dumps(design.to_dict())))
    assert again == design
    assert again.names == design.names
    X = np.array([[1.0, 0.5, 1.5]])
    np.testing.assert_array_equal(again.exog(X), design.exog(X))


@pytest.mark.parametrize("text", ["[]", "3", '{"format": "dpst', "", "null"])
def test_what_is_no_result_or_not_all_of_one_is_refused(text, tmp_path):
    path = tmp_path / "fit.json"
    path.write_text(text)
    with pytest.raises(OptionError, match="no result that dpstats wrote"):
        Results.load(path)


@pytest.mark.parametrize("version", ["1", None, 1, 2])
def test_a_result_without_its_fields_is_refused(version):
    with pytest.raises(OptionError, match=r"version|missing"):
        Results.from_dict({"format": released.FORMAT, "version": version})


def test_the_part_due_to_sampling_survives_where_there_is_a_third(fit):
    third = dataclasses.replace(fit.estimate, cov_sampling=0.3 * fit.estimate.cov)
    fit = dataclasses.replace(fit, estimate=third)._bounded()
    read = Results.from_json(fit.to_json())
    np.testing.assert_allclose(read.privacy_share, 0.7)
    np.testing.assert_array_equal(read.cov_sampling(), fit.cov_sampling())
    assert read == fit
