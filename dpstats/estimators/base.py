"""What estimators share: their public face, a budget in shares, and repairs of noisy matrices."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Share, calibrate, epsilon_of
from dpstats.errors import OptionError, given, is_number, is_whole, nearest
from dpstats.families import CLASSICAL, RELEASED
from dpstats.privacy import LabelOnly, Privacy
from dpstats.protocol import Estimator, Mechanism, Options, Plan

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "Method",
    "Request",
    "check_cov_type",
    "check_options",
    "floor_eigenvalues",
    "make_plan",
    "need_delta",
    "need_integer",
    "need_level",
    "need_positive",
    "schedule",
]

Array = NDArray[np.float64]

_LARGE = 1e100  # numerical: numbers up to it, and their inverses, have squares that are numbers


class Method(ABC):
    """A method's public face: what a user may pass is checked once, in the same words."""

    name: ClassVar[str]
    options: ClassVar[Mapping[str, str]]
    sparse: ClassVar[bool] = False
    sandwich: ClassVar[bool] = False  # whether errors are HC1, or clustered by the privacy unit
    weighted: ClassVar[bool] = False  # whether rows may have weights
    disperses: ClassVar[bool] = False  # whether the dispersion of counts is released
    otherwise: ClassVar[str] = ""  # the default in its place where its plan warns
    families: ClassVar[frozenset[tuple[str, str]]] = CLASSICAL  # (name, link)

    def plan(self, design: Design, privacy: Privacy, n: int, **options: object) -> Plan:
        """Mechanisms, cost, expected error and warnings, from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Privacy
            The guarantee: central, or that of one message of a device.
        n : int
            Public number of rows (a device has one), or a public guess of it.
        **options
            See `options`; and `cov_type`, which chooses nothing: see `check_cov_type`.

        Raises
        ------
        OptionError
            If an option is missing, unknown or out of range, delta is 0 where noise is Gaussian,
            rows are too few for the rounds or batches asked for, or the method does not fit the
            family of the response.
        TrustError
            If the method asks devices in rounds, and the guarantee allows none.
        """
        if (asked := options.pop("cov_type", None)) is not None:
            check_cov_type(asked, self.name if not self.sandwich else "", design)
        check_options(self.name, self.options, options)
        law = design.family
        if (law.name, law.link) not in self.families:
            raise OptionError(
                f"family={law.name!r} with link={law.link!r}: not with method={self.name!r} under "
                f"{privacy.trust!r} trust. Central(...) fits it by method='newton'."
            )
        if law.released and not self.disperses:
            raise OptionError(
                f"alpha={RELEASED!r}: method={self.name!r} releases no dispersion; Central(...) "
                "does, by method='newton'. Give alpha, a public number, or family='poisson'."
            )
        if design.weights is not None and not self.weighted:
            raise OptionError(
                f"weights={design.weights.name!r}: method={self.name!r} takes no weighted rows. "
                "Central(...) fits them by method='newton', with target='mle'."
            )
        plan = replace(
            self._plan(design, privacy, n, options),
            unit=_protected(design, privacy),
            subset=design.subset or "",
        )
        if plan.model == "mean" and design.endog is not None:  # of the column, and no intercept
            return replace(plan, parameters=(design.endog.name,))
        return plan

    @abstractmethod
    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        """The plan with these options, all of which the method has."""


def _protected(design: Design, privacy: Privacy) -> str:
    """Whose values neighbours differ in: a ledger adds up costs of one such thing alone."""
    if isinstance(privacy, LabelOnly):  # rows may be published, and with them what others hold back
        return f"response {', '.join(map(repr, sorted(design.inputs)))}"
    unit = None if design.schema is None else design.schema.unit
    return unit or "record"


@dataclass(frozen=True, slots=True)
class Request:
    """One planned question and its share of the budget.

    `weight` is proportional to the zero-concentrated cost (to epsilon where delta is 0): halving a
    weight multiplies Gaussian noise by sqrt(2).
    """

    slot: str
    weight: float
    purpose: str
    kind: Literal["gaussian", "laplace", "selection", "peeling"] = "gaussian"
    k: int = 1
    parts: int = 1


def schedule(
    asks: Sequence[Request], privacy: Privacy
) -> tuple[tuple[Mechanism, ...], tuple[float, float]]:
    """Mechanisms that together cost at most the guarantee asked for, and what they do cost."""
    shares = {a.slot: Share(a.kind, a.weight, a.k) for a in asks}
    events = calibrate(shares, privacy.epsilon, privacy.delta)
    mechanisms = tuple(Mechanism(a.slot, events[a.slot], a.purpose, a.parts) for a in asks)
    cost = epsilon_of([m.event for m in mechanisms], privacy.delta)
    return mechanisms, (cost, privacy.delta)


def make_plan(
    method: Estimator,
    design: Design,
    privacy: Privacy,
    n: int,
    asks: Sequence[Request],
    options: Options,
) -> Plan:
    """The plan of a method that will ask `asks`, with its public options after defaults."""
    mechanisms, cost = schedule(asks, privacy)
    return Plan(
        model=method.model,
        method=method.name,
        privacy=privacy,
        n=n,
        names=tuple(design.names),
        mechanisms=mechanisms,
        cost=cost,
        options=options,
        max_rows=1 if design.schema is None else design.schema.max_rows or 1,
    )


_NOT_REPORTED = {
    "nonrobust": "it assumes equal variances, or the family's, which nobody can check for noise",
    "HC0": "it differs from HC1 by n/(n - d), which is known: multiply",
    "HC2": "it needs the leverage of each row, which is that row's own",
    "HC3": "it needs the leverage of each row, which is that row's own",
    "HAC": "the order of rows is nothing that a private sum knows",
}


def check_cov_type(asked: object, method: str, design: Design) -> None:
    """Refuse a covariance that is not the one that is reported, and say why.

    Reported is ``"HC1"`` (``"robust"`` is understood), or where a unit of privacy has several rows
    ``"cluster"``, by that unit.

    Parameters
    ----------
    asked : object
        What a user passes as `cov_type`.
    method : str
        Name of a method that reports neither; empty where it does.
    design : Design
        Its schema says what a unit is.

    Raises
    ------
    OptionError
        If another one is asked for.
    """
    if not isinstance(asked, str):
        raise OptionError(f"cov_type={given(asked)}: a text is needed, such as 'HC1'.")
    said = f"cov_type={asked!r}:"
    if method:
        raise OptionError(
            f"{said} method={method!r} has a covariance of its own, which the summary names. Leave "
            "it out; method='newton' reports 'HC1'."
        )
    schema = design.schema
    clustered = schema is not None and (schema.max_rows or 1) > 1
    if asked == "robust" or asked == ("cluster" if clustered else "HC1"):
        return
    if asked == "cluster":
        raise OptionError(
            f"{said} rows are clustered by the unit of privacy. Declare it, Schema(..., "
            "unit='person', max_rows=5); by another column a cluster may hold any number of rows, "
            "and one would move the sum of squares by any amount."
        )
    if clustered and asked == "HC1":
        assert schema is not None
        raise OptionError(
            f"{said} rows of one {schema.unit!r} need not be independent, and are protected "
            "together: 'cluster', by that unit, is reported."
        )
    why = _NOT_REPORTED.get(asked if isinstance(asked, str) else "", "no such covariance is known")
    raise OptionError(f"{said} {why}. 'HC1' ('cluster' with unit=) is what is reported.")


def check_options(method: str, allowed: Mapping[str, str], options: Options) -> None:
    """Refuse an option that `method` does not take."""
    for name in options:
        if name not in allowed:
            known = "; ".join(f"{k}: {v}" for k, v in allowed.items()) or "none"
            raise OptionError(
                f"method={method!r} has no option {given(name)}.{nearest(name, allowed)} Its "
                f"options: {known}."
            )


def need_delta(method: str, privacy: Privacy) -> None:
    """Refuse delta = 0 for a method that adds Gaussian noise."""
    if privacy.delta == 0:
        raise OptionError(
            f"method={method!r} adds Gaussian noise, which needs delta > 0: for example "
            f"Central(epsilon={privacy.epsilon:g}, delta=1e-7)."
        )


def need_integer(name: str, asked: object, default: int, least: int, most: int) -> int:
    """The integer asked for, or the default where it is None.

    Raises
    ------
    OptionError
        If it is not an integer from `least` to `most`.
    """
    if asked is None:
        return default
    if not is_whole(asked, least, most):
        raise OptionError(f"{name}={given(asked)}: an integer from {least} to {most} is needed.")
    return int(asked)


def need_level(q: object) -> float:
    """A level of one quantile: a number between 0 and 1.

    Raises
    ------
    OptionError
        If it is none.
    """
    if is_number(q) and 0 < q < 1:
        return float(q)
    raise OptionError(
        f"q={given(q)}: a quantile is a number between 0 and 1, such as q=0.5. Several are several "
        "fits, each with a cost of its own."
    )


def need_positive(
    name: str, asked: object, default: float, zero: bool = False, most: float = _LARGE
) -> float:
    """A number above zero (or at it, with `zero`), at most `most`; a default for None.

    Raises
    ------
    OptionError
        If it is none.
    """
    if asked is None:
        return default
    value = float(asked) if is_number(asked) else math.nan
    if 1 / _LARGE <= value <= most or (zero and value == 0):
        return value
    ends = f"{'>= 0' if zero else '> 0'}" + ("" if value < 1 else f", at most {most:g},")
    raise OptionError(f"{name}={given(asked)}: a finite number {ends} is needed.")


def floor_eigenvalues(matrix: Array, floor: float) -> Array:
    """The symmetric matrix with eigenvalues raised to at least `floor` > 0."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    repaired: Array = (vectors * np.maximum(values, floor)) @ vectors.T
    return repaired
