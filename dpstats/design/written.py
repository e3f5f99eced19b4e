"""A formula as it is written: its quoted names, and its parts.

Formulaic compares names as text with numbers and calls, so that a column ``1`` would be the
intercept. Every formula passes here first, whoever wrote it: a name in backticks, or in
``Q("...")``, gets an alias that is nothing but a name.
"""

from __future__ import annotations

import ast
import keyword
import re
import unicodedata
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpstats.errors import FormulaError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_OPERATIONS", "Written", "parsed_term", "quoted", "reason", "sides", "term"]

LONGEST = 1_000_000  # characters: more than 50,000 columns, each by its name
DEEPEST = 100  # brackets within brackets; Python reads 200 of them
MOST_OPERATIONS = 150  # within each other in one term: beyond, Python's own stack is too short
MOST_PARTS = 40_000  # names and operators: formulaic's time grows with their square, to a minute

_PARTS = re.compile(
    r"""(?<![\w.])Q\(\s*(?P<Q>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")\s*\)
    |`(?P<name>[^`]*)`
    |(?P<text>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    |(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<tilde>~)""",
    re.VERBOSE | re.DOTALL,
)
_HARD = re.compile(r"""['"`\\(){}\[\]]""")  # in a text within a call
_CALLED = re.compile(r"[\w.)\]`]")  # before a bracket that is no bracket of terms


@dataclass(frozen=True)
class Written:
    """A formula, or a term, with aliases in the place of quoted names.

    Attributes
    ----------
    shown : str
        As it was written.
    text : str
        With aliases: what formulaic parses, and what is checked before.
    names : mapping of str to str
        The columns that aliases stand for.
    texts : mapping of str to str
        Texts, such as levels, that aliases stand for: formulaic cannot read quotes or brackets.
    tilde : int
        Where the right side begins in `text`; 0 where there is no ``~``.
    """

    shown: str
    text: str
    names: Mapping[str, str]
    texts: Mapping[str, str]
    tilde: int
    _forms: Mapping[str, str]

    @classmethod
    def of(cls, formula: str, columns: Iterable[str] = (), *, term: bool = False) -> Written:
        """Find quoted names.

        Parameters
        ----------
        formula : str
            A formula, or with `term` one of its terms.
        columns : iterable of str
            What ``.`` stands for.

        Raises
        ------
        FormulaError
            If it is longer, or nested deeper, than a formula may be.
        """
        _check_length(formula)
        columns = list(columns)
        aliases = _Aliases({*re.findall(r"\w+", formula), *columns})
        pieces, last, tilde, calls = list[str](), 0, 0, [term]
        for part in _PARTS.finditer(formula):
            if part["open"]:
                before = formula[part.start() - 1 : part.start()]
                calls.append(calls[-1] or part["open"] == "{" or bool(_CALLED.fullmatch(before)))
                if len(calls) > DEEPEST + 1:
                    raise FormulaError(
                        f"The formula nests brackets deeper than {DEEPEST}; write it out."
                    )
            elif part["close"]:
                del calls[max(len(calls) - 1, 1) :]
            elif part["tilde"] and not tilde:
                tilde = sum(map(len, pieces)) + part.end() - last
            elif found := _alias(part, calls[-1], aliases):
                pieces += [formula[last : part.start()], f" {found} "]
                last = part.end()
        text = "".join([*pieces, formula[last:]])
        for name in columns:
            if not _is_name(name):
                aliases.of(name, name)
        return cls(formula, text, aliases.names, aliases.texts, tilde, aliases.forms)

    @property
    def left(self) -> str:
        """The left side; empty where there is none."""
        return self.text[: max(self.tilde - 1, 0)].strip()

    @property
    def right(self) -> str:
        """The right side."""
        return self.text[self.tilde :].strip()

    def column(self, text: str) -> str:
        """The name of the column that a name in `text` stands for."""
        return self.names.get(text, text)

    def is_quoted(self, text: str) -> bool:
        """Whether a factor is a quoted name, and no more."""
        return text in self.names and self._forms[text] == self.names[text]

    def listed(self, columns: Iterable[str]) -> list[str]:
        """What ``.`` puts in the place of these columns."""
        bare = {name: alias for alias, name in self.names.items() if self.is_quoted(alias)}
        return [bare.get(name, name) for name in columns]

    def visible(self, text: str) -> str:
        """Text of formulaic with names as they were written."""
        return self._replaced(self._forms, text) if self._forms else text

    def hidden(self, text: str) -> str:
        """Inverse of `visible`, of a call."""
        again = Written.of(text, term=True)
        known = {form: alias for alias, form in self._forms.items()}
        forms = {alias: known.get(form, alias) for alias, form in again._forms.items()}
        return ast.unparse(parsed_term(self._replaced(forms, again.text))) if forms else text

    def frame(self, frame: pd.DataFrame, factors: Iterable[str]) -> pd.DataFrame:
        """Columns by the names that factors of `text` read them by, and no others.

        A column that has the name of a function is not there where that name is called.
        """
        reads = dict.fromkeys(name for text in factors for name in _reads(text))
        found = {name: self.column(name) for name in reads if self.column(name) in frame}
        return frame[[*found.values()]].set_axis([*found], axis=1)

    def tree(self, text: str) -> ast.expr:
        """Syntax tree of a term in `text`, with ``Q('name')`` where an alias stands.

        Raises
        ------
        SyntaxError
            If it is no expression.
        """
        tree = parsed_term(text)
        return _Unaliased(self).visit(tree) if self._forms else tree

    def tokens(self, text: str) -> list[Any]:
        """Formulaic's tokens of a part of `text`.

        The text is cut and nothing else: formulaic's parser looks up what a term calls by
        evaluating it, so terms that must not run are to be found before it gets the formula.

        Raises
        ------
        FormulaError
            If it cannot be cut, or has too many parts.
        """
        from formulaic.parser.algos.sanitize_tokens import sanitize_tokens
        from formulaic.parser.algos.tokenize import tokenize

        try:
            found = [token for token in sanitize_tokens(tokenize(text)) if token.kind]
        except Exception as error:
            raise self.unreadable(error) from None
        if len(found) > MOST_PARTS:
            raise FormulaError(
                f"The formula has {len(found):,} names and operators; at most {MOST_PARTS:,} are "
                "read."
            )
        return found

    def factors(self, text: str) -> Iterator[tuple[str, bool]]:
        """Every factor of a part of `text` as formulaic will see it, and whether it is a name."""
        for token in self.tokens(text):
            if token.kind.name in ("NAME", "PYTHON"):
                yield token.token, token.kind.name == "NAME"

    def unreadable(self, error: Exception) -> FormulaError:
        """What to raise where formulaic cannot read it."""
        said = self.visible(reason(error))
        return FormulaError(f"Formula {self.shown!r} cannot be parsed: {said}")

    @staticmethod
    def _replaced(forms: Mapping[str, str], text: str) -> str:
        return re.sub(r"\w+", lambda word: forms.get(word[0], word[0]), text)


def _check_length(text: str) -> None:
    """Refuse a text of more characters than a formula may have."""
    if len(text) > LONGEST:
        raise FormulaError(
            f"The formula has {len(text):,} characters; at most {LONGEST:,} are read."
        )


def _alias(part: re.Match[str], called: bool, aliases: _Aliases) -> str:
    """What stands for a quoted name, or a text; empty where it may stay as it is."""
    try:
        text = ast.literal_eval(part["Q"] or part["text"] or "''")
    except (SyntaxError, ValueError):  # "\\N{no name}"
        return ""
    if part["text"]:
        return aliases.of(text, repr(text), aliases.texts) if _HARD.search(text) else ""
    if part["Q"]:
        return aliases.of(text, f"Q({text!r})")
    name = part["name"] or ""
    if called:
        return name if _is_word(name) else aliases.of(name, f"`{name}`")
    return name if not name or _is_name(name) else aliases.of(name, name)


class _Aliases:
    """Names for quoted names, none of which is in the formula."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken, self._known = set(taken), dict[tuple[str, str], str]()
        self.names: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.forms: dict[str, str] = {}

    def of(self, name: str, form: str, among: dict[str, str] | None = None) -> str:
        among = self.names if among is None else among
        if (name, form) not in self._known:
            alias = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name))
            alias = alias if alias[:1].isidentifier() else f"_{alias}"
            while alias in self._taken or not _is_word(alias):
                alias += "_"
            self._taken.add(alias)
            self._known[name, form], among[alias], self.forms[alias] = alias, name, form
        return self._known[name, form]


def sides(formula: str) -> tuple[str, str]:
    """Left and right side as they were written; the left one is empty where there is no ``~``."""
    tildes = (part for part in _PARTS.finditer(formula) if part["tilde"])
    at = next((part.start() for part in tildes), -1)
    return formula[: max(at, 0)].strip(), formula[at + 1 :].strip()


def quoted(column: str) -> str:
    """A column of any name, such as one that holds a bracket, in a formula."""
    text = (c if c.isalnum() or not c.isascii() else f"\\x{ord(c):02x}" for c in column)
    return f"Q('{''.join(text)}')"


def term(column: str) -> str:
    """A column as a term of a right side: no name between backticks holds one."""
    return quoted(column) if "`" in column or not column else f"`{column}`"


def _is_name(text: str) -> bool:
    """Whether formulaic reads a name outside of calls as that name without quotes."""
    return bool(re.fullmatch(r"[\w.]+", text)) and not re.fullmatch(r"[0-9.]+", text)


def _is_word(text: str) -> bool:
    """Whether Python reads it as that name, and formulas as no function of theirs."""
    from formulaic.transforms import TRANSFORMS

    same = unicodedata.normalize("NFKC", text) == text
    return text.isidentifier() and same and not keyword.iskeyword(text) and text not in TRANSFORMS


class _Unaliased(ast.NodeTransformer):
    """Puts Q('name'), or a text, in the place of its alias."""

    def __init__(self, written: Written) -> None:
        self._written = written

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._written.texts:
            return ast.Constant(self._written.texts[node.id])
        if node.id not in self._written.names:
            return node
        name = ast.Constant(self._written.names[node.id])
        return ast.Call(ast.Name("Q", ast.Load()), [name], [])


def _reads(text: str) -> list[str]:
    """Names that a factor may read: itself, or what is in it, as a name or a text."""
    try:
        nodes = list(ast.walk(parsed_term(text)))
    except SyntaxError:
        return [text]
    calls = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    calls |= {id(n.value) for n in nodes if isinstance(n, ast.Attribute) and _is_module(n.value)}
    names = [n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in calls]
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return [text, *names, *(value for value in values if isinstance(value, str))]


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("np", "contr")


def parsed_term(text: str) -> ast.expr:
    """Syntax tree of a term without quoted names; raises SyntaxError if there is none."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (ValueError, RecursionError, MemoryError):  # a null byte, a deep nest
        raise SyntaxError from None
    level, depth = list[ast.AST]([tree]), 0
    while level:
        level, depth = [c for node in level for c in ast.iter_child_nodes(node)], depth + 1
        if depth > 2 * MOST_OPERATIONS:  # each has its operator, too
            raise SyntaxError
    return tree


def reason(error: Exception, columns: Collection[Hashable] = ()) -> str:
    """The first line of an error, or its name; or which columns hide a function of formulas."""
    from formulaic.transforms import TRANSFORMS

    if isinstance(error, (RecursionError, MemoryError)):
        return f"a term has more than {MOST_OPERATIONS} operations within each other."
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "is not callable" in said or "has no attribute" in said:
        hiding = [name for name in columns if isinstance(name, str) and name in TRANSFORMS]
        if hiding:
            names = ", ".join(map(repr, hiding))
            return f"column {names} has the name of a function that formulas call; rename it."
    return said
