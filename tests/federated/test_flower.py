"""Sites at a Flower link, as real processes: what goes right, and every way to go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dpstats as dp
from dpstats.datasets import randhie
from tests.federated.cases import sites, table
from tests.federated.processes import Federation, federation

pytest.importorskip("flwr", reason="uv run --group flower pytest -m flower")
from dpstats.federated.network import wire

pytestmark = [pytest.mark.flower, pytest.mark.slow]

FAULTS = ("killed_before", "killed_after", "slow", "twice")  # each a process of its own
CROWD = {
    "garbage": "garbage",
    "wrong": "wrong",
    "infinite": "infinite",
    "poor": "healthy",  # its ledger has too little
    "ceiling": "healthy",  # one question may cost too little
}
EXPECTED = {
    "home": "answered",
    "north": "answered",
    "killed_before": "late",
    "killed_after": "late",
    "slow": "late",
    "garbage": "invalid",
    "wrong": "invalid",
    "infinite": "invalid",
    "twice": "answered",
    "poor": "refused",
    "ceiling": "refused",
    "never": "late",
}
CHARGES = {"killed_before": 0, "garbage": 0, "poor": 0, "ceiling": 0, "never": 0}


def started(run: Federation, *names: str, **faults: str) -> None:
    for name in names:
        run.start_site(name)
    for name, fault in faults.items():
        run.start_site(name, fault=fault)
    for name in (*names, *faults):
        run.await_site(name)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Federation]:
    with federation(tmp_path) as made:
        made.start_link()
        yield made


def test_the_fit_goes_on_with_those_who_answer_and_no_charge_is_lost_or_made_twice(
    run: Federation,
) -> None:
    for k, name in enumerate(EXPECTED):
        run.add_site(name, table(3000, k), 0.5 if name == "poor" else 2.0)
    run.start_crowd("crowd", **CROWD)
    started(run, "home", "north", **{fault: fault for fault in FAULTS})
    run.await_crowd("crowd", *CROWD)
    kept = ("--question", "q.json", "--combine", "blend")  # rows are not asked for first

    status, out, err = run.fit(*kept, sites=",".join(EXPECTED))
    assert status == 0, err
    assert "3 of 12" in " ".join(out.split())
    first = run.result
    assert first.sources["status"].to_dict() == EXPECTED
    assert "fab" not in run.said("link").lower()  # nobody asked for a program
    reasons = first.sources["reason"]
    assert reasons["poor"] == "the ledger cannot pay"
    assert reasons["ceiling"] == "epsilon or delta is above what one question may cost here"
    run.await_charges("slow", 1)  # late is not for free: its own ledger says so
    run.await_words("slow", "too late")  # and its reply is kept
    wanted = {name: CHARGES.get(name, 1) for name in EXPECTED}
    assert {name: run.charges(name) for name in EXPECTED} == wanted
    assert (run.running["killed_before"].poll(), run.running["killed_after"].poll()) == (9, 9)

    # The same question again, to sites that work now.
    run.kill("slow")
    started(run, "slow", "killed_before", "killed_after")
    names = "home,north,twice,slow,killed_before,killed_after"
    status, _, err = run.fit(*kept, sites=names)
    assert status == 0, err
    second = run.result.sources
    assert second["status"].drop("killed_after").eq("answered").all()
    assert second.loc["killed_after", ["status", "reason"]].tolist() == [
        "refused",
        "it was charged before, and its reply was lost",
    ]
    wanted["killed_before"] = 1
    assert {name: run.charges(name) for name in EXPECTED} == wanted
    for name in ("home", "north", "twice"):
        assert first.site(name).equals(run.result.site(name))


def test_a_link_that_is_killed_is_dialled_again_and_what_was_answered_is_not_charged_again(
    run: Federation,
) -> None:
    for k, name in enumerate(("home", "north", "slow")):
        run.add_site(name, table(3000, k))
    started(run, "home", "north", slow="slow")
    kept = ("--question", "q.json", "--combine", "blend")
    fit = run.begin_fit(*kept, sites="home,north,slow")
    run.await_charges("north", 1)
    run.kill("link")
    _, err = fit.communicate(timeout=200 * run.pace)
    assert fit.returncode == 2
    assert "Ask the same question (--question) again" in " ".join(err.split())
    run.await_charges("slow", 1)
    run.await_words("slow", "too late")
    run.start_link()
    run.kill("slow")
    started(run, "slow")
    status, _, err = run.fit(*kept, sites="home,north,slow")
    assert status == 0, err
    assert run.result.sources["status"].eq("answered").all()
    assert [run.charges(name) for name in ("home", "north", "slow")] == [1, 1, 1]
    assert "dialled again" in run.said("home")


def test_rounds_go_over_a_link(run: Federation) -> None:
    names = [f"s{k}" for k in range(4)]
    for k, name in enumerate(["home", *names[1:]]):
        run.add_site(name, table(2500, k))
    started(run, "home", *names[1:])
    status, _, err = run.fit("--method", "rounds", sites="4")
    assert status == 0, err
    fit = run.result
    assert fit.sources["status"].eq("answered").all()
    assert (fit.nobs, fit.plan.method) == (10_000, "rounds")
    assert np.abs(fit.params - [0.5, 1.0, -1.0]).max() < 0.3
    assert {run.charges(name) for name in ["home", *names[1:]]} == {1}
    run.kill("s3")
    status, _, err = run.fit("--method", "rounds", join=15, sites="home,s1,s2,s3")
    assert status == 0, err
    assert run.result.sources["status"].tolist() == ["answered"] * 3 + ["late"]
    assert run.result.nobs == 7_500


def test_keys_let_in_who_is_registered_and_let_ask_who_is_known(tmp_path: Path) -> None:
    with federation(tmp_path, keys=True) as run:
        for name, rows in sites().items():
            run.add_site(name, rows, 9.0)
        run.make_keys("home", "north", "south")
        run.start_link()
        run.register("home", "south")
        started(run, "home")
        run.start_site("north")  # its key is not registered
        assert run.await_end("north") == 2
        assert "not let in" in run.said("north")
        address = wire.Address(
            run.link, run.folder / "ca.crt"
        )  # no key, by which it could be known
        with pytest.raises(wire.BarredError), wire.serving(address):
            pass
        run.start_site("far", "--insecure", "--patience", "1")  # beside --root-certificates
        assert run.await_end("far") == 2
        assert "Give one of them" in run.said("far")
        run.keys = False
        run.start_site("far", "--patience", "1")  # plain HTTP to a link with TLS
        assert run.await_end("far") == 2
        assert "out of reach" in run.said("far")
        run.keys = True
        run.start_site("far", "--root-certificates", "other.crt", "--patience", "1", key="south")
        assert run.await_end("far") == 2
        assert "ConnectError" in run.said("far")
        run.start_site("north", key="south")  # registered, and not who it says it is
        run.await_site("north")

        status, _, err = run.fit(sites="home,north", key="spy")
        assert (status, "signed by nobody who may ask here" in err) == (2, True), err
        (run.folder / "guess").write_bytes(b"g" * 48)
        status, _, err = run.fit("--secret", "guess", sites="home")
        assert (status, "not let in" in err) == (2, True), err
        assert run.charges("home") == 0
        status, _, err = run.fit(join=15, sites="home,north")
        assert status == 0, err
        assert run.result.sources["status"].to_dict() == {"home": "answered", "north": "late"}
        assert run.charges("north") == 0
        run.register("north")
        run.kill("north")
        started(run, "north")
        status, _, err = run.fit(sites="home,north")
        assert status == 0, err
        assert run.result.sources["status"].eq("answered").all()
        assert (run.charges("home"), run.charges("north")) == (2, 1)


def test_the_four_hospitals_of_the_vignette_over_a_link(tmp_path: Path) -> None:
    rows, schema = randhie.load()
    rng = np.random.default_rng(1)
    others = rng.choice(["home", "north", "east"], size=len(rows), p=[0.15, 0.45, 0.4])
    hospital = np.where(rows["idp"] == 1, "west", others)
    tables = {name: rows[hospital == name] for name in ("home", "north", "east", "west")}
    formula = "mdvis ~ lncoins + disea + physlm + hlthg"
    privacy = dp.Federated(epsilon=1.0, delta=1e-6, target="home")
    here = dp.ols(formula, data=tables, schema=schema).fit(privacy)
    with federation(tmp_path, formula=formula, schema=schema) as run:
        for name, table_of in tables.items():
            run.add_site(name, table_of)
        run.start_link()
        started(run, *tables)
        status, _, err = run.fit(sites=",".join(tables))
        assert status == 0, err
        over = run.result
    assert over.sources["n"].to_dict() == {name: len(t) for name, t in tables.items()}
    assert over.sources["status"].eq("answered").all()
    for name in tables:  # two draws of the same noise, of the same rows
        one, two = here.site(name), over.site(name)
        apart = (one["coef"] - two["coef"]) / np.hypot(one["std err"], two["std err"])
        assert apart.abs().max() < 5
