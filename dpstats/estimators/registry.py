"""The registry of methods: one line each; everything that lists methods reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpstats.errors import OptionError, TrustError, need_text
from dpstats.estimators.central import CENTRAL
from dpstats.estimators.entries import MethodEntry
from dpstats.estimators.federated import FEDERATED
from dpstats.estimators.labels import LABEL_ONLY
from dpstats.estimators.local import LOCAL
from dpstats.privacy import Privacy
from dpstats.protocol import Estimator, Options
from dpstats.text import grid, wrap
from dpstats.theory import Theory
from dpstats.theory.arithmetic import sum_of_formulas

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.design import Design

__all__ = ["ENTRIES", "ESTIMATORS", "find", "methods", "unwarned"]

# The first row for a model and a trust model is the default there.
ENTRIES: tuple[MethodEntry, ...] = (*CENTRAL, *LABEL_ONLY, *LOCAL, *FEDERATED)


ESTIMATORS: tuple[Estimator, ...]  # all of them: their modules are imported when it is read


def __getattr__(name: str) -> tuple[Estimator, ...]:
    if name == "ESTIMATORS":
        return tuple(row.method for row in ENTRIES)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(
    model: str, privacy: Privacy, method: str | None = None, sparse: bool | None = None
) -> Estimator:
    """The method of that name, or the default, for a model under a trust model.

    Parameters
    ----------
    model : str
        Such as ``"ols"``.
    privacy : Privacy, Local, LabelOnly or Federated
        The guarantee asked for; its trust model decides.
    method : str, optional
        A name from `methods`; the first row for the model and the trust model otherwise.
    sparse : bool, optional
        Only methods that select columns (True) or keep them all (False).

    Raises
    ------
    OptionError
        If there is no such model, or no such method for it.
    TrustError
        If nothing, or not this method, answers the model under the trust model.
    """
    rows = [e for e in ENTRIES if e.model == model]
    if not rows:
        known = ", ".join(dict.fromkeys(repr(e.model) for e in ENTRIES))
        raise OptionError(f"No model {model!r}: there are {known}.")
    if method is not None:
        need_text(method=method)
        rows = [e for e in rows if e.name == method]
        if not rows:
            raise OptionError(f"No method {method!r} for {model!r}. {_existing(model)}")
    if sparse is not None:
        rows = [e for e in rows if e.sparse == sparse]
        if not rows:
            raise OptionError(_no_kind(model, method, sparse))
    able = [e for e in rows if e.trust == privacy.trust]
    if not able:
        asked = repr(model) if method is None else f"{model!r} by method {method!r}"
        trust = f"under {privacy.trust!r} trust"
        others = [e.name for e in ENTRIES if e.model == model and e.trust == privacy.trust]
        if method is None and sparse is not None and others:
            does, instead = ("selects columns", "Leave sparsity= out") if sparse else _KEEPING
            names = ", ".join(map(repr, others))
            raise TrustError(f"No method of {model!r} {does} {trust}. {instead}: {names}.")
        raise TrustError(f"No method answers {asked} {trust} in this release. {_existing(model)}")
    return next((e.method for e in able if _serves(e.method, privacy)), able[0].method)


def _serves(estimator: Estimator, privacy: Privacy) -> bool:
    """Whether the method is made for this kind of the trust model: devices asked once or in rounds.

    A method that is not says so in its plan.
    """
    serves = getattr(estimator, "serves", None)
    return serves is None or bool(serves(privacy))


_SYMMETRIC = ("gaussian_mixture", "mixture_ols")  # models that are sparse only where they are so


_KEEPING = ("keeps every column", "Give sparsity=, a number of columns")


def _no_kind(model: str, method: str | None, sparse: bool) -> str:
    """Why nothing, or not this method, selects columns (or keeps them all)."""
    does = "selects columns (sparsity=)" if sparse else "keeps every column"
    able = ", ".join(repr(e.name) for e in ENTRIES if e.model == model and e.sparse == sparse)
    asked = f"No method of {model!r}" if method is None else f"Method {method!r} is none that"
    if sparse and model in _SYMMETRIC:
        able = f"{model}(..., symmetric=True), two components around b and -b"
    return f"{asked} {does}." + (f" These do: {able}." if able else "")


def _existing(model: str) -> str:
    """What there is for a model, in a sentence."""
    rows = (f"{e.name!r} ({e.trust})" for e in ENTRIES if e.model == model)
    return f"Methods of {model!r}: {', '.join(rows)}; dpstats.methods() lists all."


def methods(model: str | None = None, trust: str | None = None) -> pd.DataFrame:
    """What can be fitted: one row for each method and trust model, defaults first.

    A method has a row more for each option under which another theorem holds.

    Parameters
    ----------
    model : str, optional
        Only this model.
    trust : str, optional
        Only this trust model: ``"central"``, ``"local"``, ``"label-only"`` or ``"federated"``.

    Returns
    -------
    DataFrame
        Columns model, method, trust, given (options that the row is about), source (of the private
        term), rate (upper, constants 1), conditions and options. Printed, it is a line for each
        model and trust model with the names of its methods, the default first.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.methods("logit", "label-only").method.tolist()[0]
    'label-glm'
    """
    import pandas as pd

    need_text(**{k: v for k, v in {"model": model, "trust": trust}.items() if v is not None})

    rows = [
        {
            "model": e.model,
            "method": e.name,
            "trust": name,
            "given": given,
            "source": _source(theory),
            "rate": sum_of_formulas(r.formula for r in theory.upper),
            "conditions": "; ".join(a.statement for a in theory.conditions),
            "options": "; ".join(f"{k}: {v}" for k, v in e.options.items()),
        }
        for e in (row.method for row in ENTRIES)
        for name, known in e.theory.items()
        for given, theory in known.rows()
        if model in (None, e.model) and trust in (None, name)
    ]
    columns = ["model", "method", "trust", "given", "source", "rate", "conditions", "options"]
    return _by_names(pd.DataFrame(rows, columns=columns))


def _by_names(table: pd.DataFrame) -> pd.DataFrame:
    """The table, which prints names of methods by model and trust model."""

    class MethodTable(type(table)):  # type: ignore[misc]
        def __repr__(self) -> str:
            if not {"model", "trust", "method"} <= set(self.columns):
                return super().__repr__()  # type: ignore[no-any-return]
            found: dict[tuple[str, str], list[str]] = {}
            for model, trust, name in zip(self.model, self.trust, self.method, strict=True):
                found.setdefault((model, trust), []).append(name)
            rows = [(*pair, ", ".join(dict.fromkeys(names))) for pair, names in found.items()]
            more = ", ".join(c for c in self.columns if c not in ("model", "trust", "method"))
            lines = grid(("model", "trust", "methods, the default first"), rows)
            return "\n".join([*lines, "", *wrap([f"Columns of this DataFrame besides: {more}."])])

    made: pd.DataFrame = MethodTable(table)
    return made


def _source(theory: Theory) -> str:
    """Who proves the private term of the upper rate, or makes its order likely."""
    rate = next(r for r in theory.upper if r.term == "privacy")
    where = f", {rate.source.locator}" if rate.source.locator else ""
    conjectured = "order conjectured from " if rate.conjectured else ""
    return f"{conjectured}{rate.source.authors} ({rate.source.year}){where}"


def unwarned(
    usual: Estimator, design: Design, privacy: Privacy, n: int, options: Options
) -> Estimator:
    """The default, or the method that stands in its place where its plan warns."""
    if not usual.otherwise:
        return usual
    try:
        warned = bool(usual.plan(design, privacy, n, **options).warnings)
    except OptionError:  # the other one says what is wrong
        warned = True
    return find(usual.model, privacy, usual.otherwise) if warned else usual
