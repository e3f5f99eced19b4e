"""Normal-theory inference from a released estimate and its covariance: pure numerics.

Arrays in, small frozen records out. Nothing here knows about privacy; the covariance that comes
in already holds sampling and privacy noise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.errors import OptionError, given, is_number
from dpstats.protocol.estimate import ParameterTable
from dpstats.text import look_alike

__all__ = [
    "Contrast",
    "WaldTable",
    "WaldTest",
    "bounds_of",
    "contrast",
    "interval",
    "normal_quantile",
    "parse_constraints",
    "terms_as_statsmodels",
    "tests_of",
    "wald_table",
    "wald_terms",
    "wald_test",
]

Array = NDArray[np.float64]


def normal_quantile(alpha: float) -> float:
    """Two-sided critical value, the 1 - alpha/2 quantile of the standard normal.

    Raises
    ------
    OptionError
        Unless 0 < alpha < 1.
    """
    from scipy.special import ndtri

    if not (is_number(alpha) and 0 < alpha < 1):
        raise OptionError(f"alpha={given(alpha)}: a level in (0, 1) is needed, such as 0.05.")
    return float(-ndtri(float(alpha) / 2))


def interval(center: ArrayLike, se: ArrayLike, alpha: float) -> Array:
    """Normal interval of level 1 - alpha: columns lower and upper, shape (k, 2)."""
    center, half = np.atleast_1d(center), normal_quantile(alpha) * np.atleast_1d(se)
    return np.column_stack([center - half, center + half])


def bounds_of(table: ParameterTable, alpha: float) -> Array:
    """Intervals of level 1 - alpha of the parameters in the model, shape (k, 2)."""
    if table.bounds is None:
        return interval(table.inner_values, _sd(np.diag(table.cov)), alpha)
    normal_quantile(alpha)  # refuses what is no level
    return table.bounds(float(alpha))


@dataclass(frozen=True, slots=True)
class WaldTable:
    """Standard errors, z statistics and two-sided p-values, each of shape (k,)."""

    se: Array
    z: Array
    p: Array


def _sd(variance: Array) -> Array:
    # Rounding may leave -1e-20 where a variance is 0; a truly negative one stays visible as nan.
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.where(np.abs(variance) < 1e-300, 0.0, variance))


def _ratio(value: Array, sd: Array) -> tuple[Array, Array]:
    from scipy.special import ndtr

    with np.errstate(divide="ignore", invalid="ignore"):
        z = value / sd
    return z, 2 * ndtr(-np.abs(z))


def wald_table(params: Array, cov: Array, testable: NDArray[np.bool_] | bool = True) -> WaldTable:
    """Test each parameter against 0; `params` (d,), `cov` (d, d). nan where it is not testable."""
    se = _sd(np.diag(cov))
    z, p = (np.where(testable, value, np.nan) for value in _ratio(params, se))
    return WaldTable(se, z, p)


def tests_of(table: ParameterTable) -> WaldTable:
    """Tests of ``parameter = 0`` that agree with `bounds_of`, and standard errors."""
    from scipy.special import ndtr

    found = wald_table(table.inner_values, table.cov, table.testable)
    if table.deviates is None:
        return found
    return WaldTable(found.se, table.deviates, 2 * ndtr(-np.abs(table.deviates)))


@dataclass(frozen=True, slots=True)
class Contrast:
    """``R b`` against ``q``, row by row: effect, sd, z and p, each of shape (k,)."""

    effect: Array
    sd: Array
    z: Array
    p: Array


def contrast(params: Array, cov: Array, R: Array, q: Array) -> Contrast:
    """Test each of the k rows of ``R b = q``; `R` (k, d), `q` (k,)."""
    effect = R @ params
    sd = _sd(np.einsum("kd,de,ke->k", R, cov, R))
    return Contrast(effect, sd, *_ratio(effect - q, sd))


def parse_constraints(
    spec: Any, names: Sequence[str], left_out: Collection[str] = ()
) -> tuple[Array, Array]:
    """``R`` of shape (k, d) and ``q`` of shape (k,) of the hypotheses ``R b = q``.

    Parameters
    ----------
    spec : str, list of str, array of shape (k, d) or (d,), or a pair of arrays (R, q)
        Text compares linear expressions of coefficient names: ``"a = 0, b = 2 * c"``; an
        expression without ``=`` is compared with 0.
    names : sequence of str
        The d coefficients.
    left_out : collection of str
        Columns that a sparse fit did not select: naming one is refused with that reason.

    Raises
    ------
    OptionError
        If text cannot be read or names no coefficient, or an array has another shape.
    """
    if isinstance(spec, str):
        return _parse_text(spec, names, left_out)
    if isinstance(spec, (list, tuple)) and spec and all(isinstance(item, str) for item in spec):
        return _parse_text(", ".join(spec), names, left_out)
    R, q = spec if isinstance(spec, tuple) and len(spec) == 2 else (spec, None)
    try:
        R = np.atleast_2d(np.asarray(R, dtype=float))
        q = np.zeros(len(R)) if q is None else np.atleast_1d(np.asarray(q, dtype=float).squeeze())
    except (TypeError, ValueError, OverflowError):
        raise OptionError(
            f"{given(spec)}: hypotheses are a text such as 'a = 0, b = 2 * c', a list of such, or "
            "arrays of numbers R, or R and q."
        ) from None
    if R.ndim != 2 or R.shape[1] != len(names) or q.shape != (len(R),):
        raise OptionError(
            f"Hypotheses R b = q with R of shape {R.shape} and q of shape {q.shape}: R needs "
            f"{len(names)} columns, one per coefficient in the model, and q one number per row."
        )
    return R, q


def _parse_text(text: str, names: Sequence[str], left_out: Collection[str]) -> tuple[Array, Array]:
    # Names may hold commas, quotes, operators: each is replaced by an identifier, longest first.
    alias = {name: f"b{j}_" for j, name in enumerate(names)}
    mentioned = sorted({*names, *(name for name in left_out if name in text)}, key=len)[::-1]
    words = re.compile("|".join([*map(_as_written, mentioned), r"(`[^`]*`)"]))

    def replaced(hit: re.Match[str]) -> str:
        if hit.lastindex == len(mentioned) + 1:
            quoted = hit.group()[1:-1]
            alike = look_alike(quoted, names)
            raise OptionError(
                f"Hypothesis {given(text)}: there is no coefficient {quoted!r}. "
                f"{alike and alike + ' '}The coefficients are {', '.join(names)}."
            )
        name = mentioned[(hit.lastindex or 1) - 1]
        if name not in alias:
            raise OptionError(
                f"Hypothesis {given(text)}: column {name!r} was not selected. Its coefficient is 0 "
                "because it was left out, not because it was estimated so, and cannot be tested; "
                f"the coefficients in the model are {', '.join(names)}."
            )
        return alias[name]

    plain = words.sub(replaced, text)
    units = dict(zip(alias.values(), np.eye(len(names) + 1), strict=False))
    try:
        rows = np.array([_equation(part, units) for part in plain.split(",")])
    except (SyntaxError, TypeError, ValueError, KeyError, ZeroDivisionError):
        raise OptionError(
            f"Hypothesis {given(text)} cannot be read. Write linear equations such as "
            f"'a = 0, b = 2 * c'; the coefficients are {', '.join(names)}."
        ) from None
    return rows[:, :-1], 0.0 - rows[:, -1]


def _as_written(name: str) -> str:
    """A pattern of a coefficient, with or without backticks; a number with them alone."""
    parts = []
    for part in name.split(":"):
        base, bracket, rest = part.partition("[")
        base = re.escape(base)
        parts.append(f"(?:`{base}`|{base}){re.escape(bracket + rest)}")
    whole = re.escape(name)
    bare = [] if re.fullmatch(r"[0-9.]+", name) else [whole, ":".join(parts)]
    forms = "|".join([f"`{whole}`", *bare])
    return rf"(?<![\w.])({forms})(?!\w)"


def _equation(text: str, units: dict[str, Array]) -> Array:
    """Left minus right side as (coefficients, constant), shape (d + 1,)."""
    left, equals, right = text.partition("=")
    if left.count("(") > left.count(")"):  # the equation as a whole is in parentheses
        left, right = left.replace("(", "", 1), right.strip().removesuffix(")")
    row = _linear(ast.parse(left.strip(), mode="eval").body, units)
    return row - _linear(ast.parse(right.strip(), mode="eval").body, units) if equals else row


def _linear(node: ast.AST, units: dict[str, Array]) -> Array:
    """Value of a linear expression as (coefficients, constant), shape (d + 1,)."""
    match node:
        case ast.Name(id=name):
            return units[name]
        case ast.Constant(value=int() | float() as number):
            return np.append(np.zeros(len(units)), float(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_linear(operand, units)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sign = 1.0 if isinstance(op, ast.Add) else -1.0
            return _linear(left, units) + sign * _linear(right, units)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right):
            a, b = _linear(left, units), _linear(right, units)
            if isinstance(op, ast.Div):
                return a * (1 / _constant(b))  # ZeroDivisionError, not inf
            return a * _constant(b) if not b[:-1].any() else b * _constant(a)
    raise ValueError("not a linear expression")


def _constant(value: Array) -> float:
    if value[:-1].any():
        raise ValueError("a product or quotient of coefficients is not linear")
    return float(value[-1])


@dataclass(frozen=True, slots=True)
class WaldTest:
    """Joint test of ``R b = q``: chi-squared statistic and its degrees of freedom."""

    statistic: float
    df: int


def wald_test(params: Array, cov: Array, R: Array, q: Array) -> WaldTest:
    """Wald statistic ``(Rb - q)' (R V R')^- (Rb - q)``, chi-squared with rank(R V R') df.

    Raises
    ------
    OptionError
        If the hypothesis is about nothing that was estimated: its variance is 0.
    """
    gap, middle = R @ params - q, R @ cov @ R.T
    df = int(np.linalg.matrix_rank(middle, hermitian=True))
    if df == 0:
        raise OptionError(
            "The hypothesis has variance 0: it is about no coefficient that was estimated with an "
            "error, and there is nothing to test."
        )
    return WaldTest(float(gap @ np.linalg.pinv(middle, hermitian=True) @ gap), df)


def wald_terms(table: ParameterTable, terms: Sequence[str]) -> list[tuple[str, float, int, float]]:
    """Each term against 0, all of its parameters together: name, statistic, df and p-value.

    nan where one of its parameters cannot be tested.

    Parameters
    ----------
    table : ParameterTable
        Released parameters and their covariance.
    terms : sequence of str
        The term of each of the k parameters in the model.
    """
    from scipy.special import chdtrc

    found = []
    for term in dict.fromkeys(terms):
        at = np.flatnonzero([other == term for other in terms])
        if not table.testable[at].all():
            found.append((term, np.nan, at.size, np.nan))
            continue
        R = np.eye(len(terms))[at]
        test = wald_test(table.inner_values, table.cov, R, np.zeros(at.size))
        found.append((term, test.statistic, test.df, float(chdtrc(test.df, test.statistic))))
    return found


def terms_as_statsmodels(found: Sequence[tuple[str, float, int, float]], mark: str = "") -> Any:
    """Tests of terms as statsmodels' ``WaldTestResults``; what it prints carries the `mark`."""
    import pandas as pd
    from statsmodels.stats.contrast import WaldTestResults

    class MarkedTerms(WaldTestResults):  # type: ignore[misc]
        def __str__(self) -> str:
            return f"{super().__str__()}\n{mark}".rstrip()

    index = [term for term, *_ in found]
    rows = [(statistic, p, df) for _, statistic, df, p in found]
    table = pd.DataFrame(rows, index=index, columns=["statistic", "pvalue", "df_constraint"])
    return MarkedTerms(None, "chi2", None, table=table)


def _marked(kind: Any, mark: str) -> Any:
    """Results of tests of this kind, with a mark on what they print."""

    class MarkedTest(kind):  # type: ignore[misc]
        def summary(self, xname: Any = None, alpha: float = 0.05, title: Any = None) -> Any:
            if self.effect is None:
                return f"{super().summary(xname, alpha)} {mark}"
            title = "Test for Constraints" if title is None else title
            return super().summary(xname, alpha, f"{title} {mark}".strip())

    return MarkedTest


def as_statsmodels(
    result: Contrast | WaldTest, df_resid: float, use_f: bool = False, mark: str = ""
) -> Any:
    """The same numbers as statsmodels' ``ContrastResults``, which prints and exports them.

    With a `mark`, whatever it prints carries it.
    """
    from statsmodels.stats.contrast import ContrastResults

    made = _marked(ContrastResults, mark) if mark else ContrastResults
    if isinstance(result, Contrast):
        return made(
            effect=result.effect,
            statistic=result.z,
            sd=result.sd,
            df_denom=df_resid,
            distribution="norm",
        )
    if use_f:
        return made(F=result.statistic / result.df, df_denom=df_resid, df_num=result.df)
    return made(
        statistic=result.statistic, df_denom=result.df, distribution="chi2", distargs=(result.df,)
    )
