"""What the child processes of the ledger tests run."""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

from dpstats.accounting import Gaussian, Ledger, chain
from dpstats.accounting.calibration import gdp_mu
from dpstats.errors import BudgetError
from dpstats.privacy import Central


@dataclass(frozen=True)
class Charge:
    """The part of a plan that a ledger reads."""

    privacy: Central
    events: tuple
    model: str = "ols"
    method: str = "test"
    cost: tuple = field(default=(0.0, 0.0))


def gaussian_charge(epsilon, delta=1e-7, **privacy):
    noise = (1 / gdp_mu(epsilon, delta)) * (1 + 1e-9)
    return Charge(Central(epsilon, delta, **privacy), (Gaussian(noise),))


def charge_many(path: str, notes: str, name: str, count: int) -> None:
    """Charge, and note each label after it was confirmed; refusals are noted as such."""
    ledger, plan = Ledger.open(path), gaussian_charge(0.1)
    with Path(notes).open("a", buffering=1) as out:
        for i in range(len(Path(notes).read_text().splitlines()), count):
            label = f"{name}/{i}/{os.getpid()}"
            try:
                ledger.charge(plan, label=label)
            except BudgetError:
                label = "refused"
            out.write(label + "\n")


def die_inside_charge(path: str, statement: str) -> None:
    """Charge, and be killed right before SQLite runs the statement that starts so."""
    connect = chain.connect

    def deadly(where):
        connection = connect(where)

        def trace(sql):
            if sql.startswith(statement):
                os.kill(os.getpid(), signal.SIGKILL)

        connection.set_trace_callback(trace)
        return connection

    import dpstats.accounting.ledger as module

    module.connect = deadly
    Ledger.open(path).charge(gaussian_charge(0.2), label="killed")
