"""Defects that the contract suite must catch, as edits of the package's source.

Each mutant replaces one piece of text by another, in one or more files, and names the tests of
which at least one must fail. A mutant whose text is no longer there is an error: move it along with
the code that it breaks.
"""

from __future__ import annotations

from dataclasses import dataclass

CONTRACTS = "tests/contracts"


@dataclass(frozen=True)
class Edit:
    """Replace `old`, which occurs in `path`, by `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A defect and the tests that must see it.

    Attributes
    ----------
    name : str
        What the defect does.
    edits : tuple of Edit
        How it is made.
    tests : str
        Test file of the contract suite.
    select : str
        pytest's ``-k`` expression.
    """

    name: str
    edits: tuple[Edit, ...]
    tests: str
    select: str = ""

    @property
    def arguments(self) -> list[str]:
        """Of pytest."""
        return [f"{CONTRACTS}/{self.tests}", *(["-k", self.select] if self.select else [])]


def mutant(name: str, path: str, old: str, new: str, tests: str, select: str = "") -> Mutant:
    return Mutant(name, (Edit(path, old, new),), tests, select)


CURATOR = "dpstats/holders/curator.py"
ROWS = "dpstats/holders/rows.py"
RELEASE = "dpstats/mechanisms/release.py"
LINEAR = "dpstats/queries/linear.py"
BASE = "dpstats/queries/base.py"
COORDINATES = "dpstats/queries/coordinates.py"
MODEL = "dpstats/model.py"

MUTANTS = [
    # noise
    mutant(
        "halves the Gaussian noise and says nothing",
        RELEASE,
        "noise.gaussian(steps, scale / grid)",
        "noise.gaussian(steps, scale / grid / 2)",
        "test_noise.py",
        "sums and adassp",
    ),
    mutant(
        "halves the Gaussian noise: seen from outside",
        RELEASE,
        "noise.gaussian(steps, scale / grid)",
        "noise.gaussian(steps, scale / grid / 2)",
        "test_audit.py",
        "each_mechanism and adassp",
    ),
    mutant(
        "halves the Laplace noise",
        RELEASE,
        "noise.laplace(steps, scale / grid)",
        "noise.laplace(steps, scale / grid / 2)",
        "test_noise.py",
        "sums and karwa",
    ),
    mutant(
        "chooses with twice the epsilon",
        RELEASE,
        "noise.top_k(steps, event.k, scale / grid)",
        "noise.top_k(steps, event.k, scale / grid / 2)",
        "test_noise.py",
        "choices and clipped",
    ),
    mutant(
        "gives every comparison of a search the whole budget",
        RELEASE,
        "scale = event.noise_multiplier * math.sqrt(rounds) * sensitivity * ROUNDING",
        "scale = event.noise_multiplier * sensitivity * ROUNDING",
        "test_transcript.py",
        "noise_that_was_planned and newton",
    ),
    mutant(
        "doubles the noise",
        RELEASE,
        "noise.gaussian(steps, scale / grid)",
        "noise.gaussian(steps, scale / grid * 2)",
        "test_noise.py",
        "sums and adassp",
    ),
    mutant(
        "seeds the safe noise",
        "dpstats/mechanisms/noise.py",
        "return _OpenDPStream()",
        "return _SeededStream(np.random.default_rng(0))",
        "test_order.py",
        "cannot_be_repeated",
    ),
    # sensitivity
    mutant(
        "drops the clip of residuals",
        LINEAR,
        "block.weight * np.clip(self.residual(block), -self.clip, self.clip)",
        "block.weight * self.residual(block)",
        "test_sensitivity.py",
        "neighbours_move",
    ),
    mutant(
        "drops the weight of long rows",
        BASE,
        "block.keep * (radius / np.maximum(norms, radius))",
        "block.keep * np.ones_like(norms)",
        "test_sensitivity.py",
        "neighbours_move",
    ),
    mutant(
        "swaps sqrt(2) for 1 in the Gram sensitivity",
        BASE,
        "ACUTE = math.sqrt(2.0)",
        "ACUTE = 1.0 + 1e-12",
        "test_sensitivity.py",
        "neighbours_move and adassp",
    ),
    mutant(
        "halves the sensitivity between query and mechanism",
        CURATOR,
        "sensitivity = query.sensitivity(self._neighbors, self._max_rows)",
        "sensitivity = query.sensitivity(self._neighbors, self._max_rows) / 2",
        "test_sensitivity.py",
        "scaled_to_the_sensitivity",
    ),
    mutant(
        "takes add-remove sensitivities for replace-one",
        CURATOR,
        "self._neighbors = plan.privacy.neighbors",
        'self._neighbors = type(plan.privacy.neighbors)("add-remove")',
        "test_sensitivity.py",
        "neighbours_move",
    ),
    mutant(
        "ignores max_rows where rows are dropped",
        ROWS,
        "inside = rank < self._max_rows",
        "inside = rank < codes.size",
        "test_sensitivity.py",
        "person and neighbours_move",
    ),
    mutant(
        "ignores max_rows in the sensitivity",
        CURATOR,
        "self._max_rows)\n        view",
        "1)\n        view",
        "test_sensitivity.py",
        "person and neighbours_move",
    ),
    mutant(
        "counts incomplete rows",
        ROWS,
        "self._keep[rows] = raw.keep",
        "pass",
        "test_sensitivity.py",
        "incomplete",
    ),
    mutant(
        "drops the clip of the residual in scores of columns",
        COORDINATES,
        "clipped = np.clip(residual(block, self.beta, self.family), -self.clip, self.clip)",
        "clipped = residual(block, self.beta, self.family)",
        "test_sensitivity.py",
        "noisy-ht and neighbours_move",
    ),
    mutant(
        "drops the clip of the columns in their scores",
        COORDINATES,
        "return np.clip(block.x, -limit, limit), 1.0",
        "return block.x, 1.0",
        "test_sensitivity.py",
        "omp and neighbours_move",
    ),
    mutant(
        "releases peeled values without noise",
        RELEASE,
        "released = noise.laplace(steps[chosen], scale / grid) * grid",
        "released = steps[chosen] * grid",
        "test_noise.py",
        "peeling",
    ),
    mutant(
        "halves the noise that chooses columns",
        RELEASE,
        "scale = 2.0 / event.epsilon * sensitivity * ROUNDING",
        "scale = 1.0 / event.epsilon * sensitivity * ROUNDING",
        "test_noise.py",
        "exponential_mechanism and clipped",
    ),
    mutant(
        "takes a curvature for its cap",
        LINEAR,
        "bound = max_rows * self.geometry.radius**2 * self._cap",
        "bound = max_rows * self.geometry.radius**2 * self._cap / 2",
        "test_sensitivity.py",
        "logit-newton and neighbours_move",
    ),
    # plan, cost, ledger
    mutant(
        "charges nothing for the second half of the rows",
        "dpstats/protocol.py",
        "for b in range(1, 3)",
        "for b in range(1, 2)",
        "test_transcript.py",
        "every_mechanism_is_charged",
    ),
    mutant(
        "asks all rows where a half was planned",
        CURATOR,
        "cut, cuts = (mechanism.branch - 1, 2) if mechanism.branch else (part, mechanism.parts)",
        "cut, cuts = part, mechanism.parts",
        "test_sensitivity.py",
        "half_only",
    ),
    mutant(
        "uses a slot more often than planned",
        CURATOR,
        "self._answered.add((slot, part))",
        "self._rows.total(query, self._rows.everything, cut, cuts)\n"
        "        self._transcript.append(Release(slot, query.name, query.parameters(), 1.0, 1.0,"
        " mechanism.event, part))",
        "test_transcript.py",
        "equal_the_plan",
    ),
    mutant(
        "doubles the steps of gradient descent",
        "dpstats/estimators/dp_gd.py",
        "        for t in range(steps):\n",
        "        for t in [*range(steps), *range(steps)]:\n",
        "test_transcript.py",
        "equal_the_plan and dp-gd",
    ),
    Mutant(
        "doubles the steps, past a holder that does not count",
        (
            Edit(
                "dpstats/estimators/dp_gd.py",
                "        for t in range(steps):\n",
                "        for t in [*range(steps), *range(steps)]:\n",
            ),
            Edit(CURATOR, "        self._answered.add((slot, part))\n", ""),
        ),
        "test_transcript.py",
        "equal_the_plan and dp-gd",
    ),
    mutant(
        "plans a mechanism twice for one price",
        "dpstats/estimators/base.py",
        "mechanisms = tuple(Mechanism(a.slot, events[a.slot], a.purpose, a.parts) for a in asks)",
        "mechanisms = tuple(Mechanism(a.slot, events[a.slot], a.purpose, a.parts)"
        " for a in [*asks, *asks[-1:]])",
        "test_cost.py",
        "costs_what_was_asked and adassp",
    ),
    mutant(
        "calibrates to twice the budget",
        "dpstats/estimators/base.py",
        "events = calibrate(shares, privacy.epsilon, privacy.delta)",
        "events = calibrate(shares, 2 * privacy.epsilon, privacy.delta)",
        "test_cost.py",
        "costs_what_was_asked",
    ),
    mutant(
        "skips the charge",
        MODEL,
        "        ledger.charge(plan, label=self._recipe.text, unit=unit)\n",
        "",
        "test_order.py",
        "charge",
    ),
    mutant(
        "charges after reading",
        MODEL,
        "        ledger.charge(plan, label=self._recipe.text, unit=unit)\n",
        "        source.block(0, 1)\n"
        "        ledger.charge(plan, label=self._recipe.text, unit=unit)\n",
        "test_order.py",
        "before_the_first_row",
    ),
    mutant(
        "forgets the unit of privacy in the ledger",
        MODEL,
        "label=self._recipe.text, unit=unit)",
        "label=self._recipe.text)",
        "test_transcript.py",
        "ledger_entry and person",
    ),
    mutant(
        "reads rows for a plan",
        MODEL,
        "        n = self._rows(privacy)\n",
        "        n = self._rows(privacy)\n        design.source(self._data).block(0, 1)\n",
        "test_order.py",
        "plan_reads_no_row",
    ),
    mutant(
        "uses the number of rows where it is private",
        MODEL,
        "        return privacy.rows\n",
        "        return self._counted(privacy)\n",
        "test_transcript.py",
        "guess_of_the_row_count",
    ),
    mutant(
        "uses the public guess instead of the noisy count",
        "dpstats/estimators/sandwich.py",
        "return max(float(answer[0]), columns + 2.0)",
        "return float(self.plan.n)",
        "test_accuracy.py",
        "statsmodels and add-remove",
    ),
    # results and messages
    mutant(
        "stores a row in the results",
        MODEL,
        "        return Results.from_estimate(\n",
        '        estimate.released["first"] = design.source(self._data).block(5, 6).y[0]\n'
        "        return Results.from_estimate(\n",
        "test_secrets.py",
        "no_canary",
    ),
    mutant(
        "keeps the holder in the results",
        MODEL,
        "            if isinstance(privacy, Local):\n",
        '            object.__setattr__(estimate, "_holder", holder)\n'
        "            if isinstance(privacy, Local):\n",
        "test_secrets.py",
        "canary or holder",
    ),
    mutant(
        "prints a value in an error",
        "dpstats/holders/sealed.py",
        'f"The private side stopped with {type(error).__name__}; its message is withheld "',
        'f"The private side stopped with {error}; its message is withheld "',
        "test_secrets.py",
        "quotes_no_row",
    ),
    mutant(
        "lets frames with rows leave with an error",
        MODEL,
        "            raise without_frames(error) from None\n",
        "            raise\n",
        "test_secrets.py",
        "carries_no_frame",
    ),
    mutant(
        "warns where values are missing",
        ROWS,
        "            if not raw.keep.all():\n",
        "            if not raw.keep.all():\n"
        '                __import__("warnings").warn(f"{(~raw.keep).sum()} incomplete rows")\n',
        "test_secrets.py",
        "printed_logged",
    ),
    mutant(
        "stops early where there is nothing to find",
        CURATOR,
        "        self._answered.add((slot, part))\n",
        "        self._answered.add((slot, part))\n"
        "        if not self._rows._keep.any():\n            raise PlanError('nothing to do')\n",
        "test_transcript.py",
        "same_questions",
    ),
]
