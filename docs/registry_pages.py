"""Markdown made from the registry of methods, so that the pages cannot list what is not there."""

from collections.abc import Iterable
from pathlib import Path

from typeset import latex

from dpstats import estimators
from dpstats.protocol import Estimator
from dpstats.theory import Citation, Rate, Theory

__all__ = ["write"]


def write(folder: Path) -> None:
    """Write ``methods.md`` and ``bibliography.md`` into `folder`."""
    folder.mkdir(exist_ok=True)
    methods = [m for m in estimators.ESTIMATORS if m.theory]
    pages = {"methods.md": _methods(methods), "bibliography.md": _bibliography(methods)}
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def _methods(methods: Iterable[Estimator]) -> str:
    return "\n".join(_table() + [_section(m) for m in methods])


def _table() -> list[str]:
    lines = ["| Method | Trust | Upper rate, and whose theorem it is |", "|---|---|---|"]
    for row in estimators.methods().itertuples():
        name = f"{row.model.replace('_', ' ')} by {row.method}"
        name += f" with `{row.given}`" if row.given else ""
        rate = f"{_breakable(row.rate)}, {row.source}" if row.rate else row.source
        lines.append("| " + " | ".join([name, row.trust, rate]) + " |")
    return [*lines, ""]


def _breakable(rate: str) -> str:
    """A rate in one formula for each term, so that lines may end between them."""
    terms, depth = [""], 0
    for part in rate.split(" + "):
        terms[-1] += part
        depth += part.count("(") - part.count(")")
        terms += [] if depth else [""]
        terms[-1] += " + " if depth else ""
    return " + ".join(f"${latex(term)}$" for term in terms if term)


def _section(method: Estimator) -> str:
    lines = [f"## {method.model}: {method.name}", "", _first_line(method), ""]
    for trust, known in method.theory.items():
        for given, theory in known.rows():
            where = f"{trust}, with {given}" if given else trust
            stated = _theory(theory, rates_only=bool(given))
            lines += [f"### {method.model}: {method.name}, {where}", "", *stated]
    if method.options:
        lines += ["Options", *_list(f"`{k}`: {v}" for k, v in method.options.items())]
    return "\n".join(lines)


def _theory(theory: Theory, *, rates_only: bool) -> list[str]:
    lists = {
        "Conditions of the error bound (never of the privacy)": [
            a.statement for a in theory.conditions
        ],
        "Departures from the printed method": theory.corrections,
        "Sources": [c.text() for c in theory.citations],
    }
    lines = [f"Estimand\n: {theory.estimand}\n", f"Guarantee\n: {theory.guarantee}\n"]
    rates = {"Upper rate": theory.upper, "Lower bound": theory.lower}
    rates |= {f"The target alone, {side}": terms for side, terms in theory.alone.items()}
    found = [f"{name}\n: {_rates(terms)}\n" for name, terms in rates.items() if terms]
    if rates_only:
        lines, lists = [], dict(list(lists.items())[:1])
    lines += found
    for title, items in lists.items():
        if items:
            lines += [title, *_list(items)]
    return lines


def _rates(terms: Iterable[Rate]) -> str:
    return " + ".join(f"${latex(t.formula)}$ ({_credit(t)})" for t in terms)


def _credit(rate: Rate) -> str:
    """The term, who proves it, and whether of this method."""
    conjectured = "order conjectured from " if rate.conjectured else ""
    return f"{rate.term}: {conjectured}{_short(rate.source)}"


def _list(items: Iterable[str]) -> list[str]:
    """The items as the body of a definition."""
    first, *rest = [f"- {item}" for item in items]
    return [f": {first}", *(f"  {item}" for item in rest), ""]


def _short(source: Citation) -> str:
    return f"{source.authors} ({source.year})" + (f", {source.locator}" if source.locator else "")


def _first_line(method: Estimator) -> str:
    return (type(method).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def _bibliography(methods: Iterable[Estimator]) -> str:
    sources = {c.key: c for m in methods for t in m.theory.values() for c in t.citations}
    ordered = sorted(sources.values(), key=lambda c: (c.authors, c.year))
    return "\n".join(f"- {c.at('').text()}" for c in ordered) + "\n"
