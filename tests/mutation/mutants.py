"""Defects that the contract suite must catch, as edits of the package's source.

Each mutant replaces one piece of text by another, in one or more files, and names the tests of
which at least one must fail. A mutant whose text is no longer there is an error: move it along with
the code that it breaks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    grid : bool
        Whether it takes a case of the full grid: no default test has the mechanism in question.
    """

    name: str
    edits: tuple[Edit, ...]
    tests: str
    select: str = ""
    grid: bool = False

    @property
    def arguments(self) -> list[str]:
        """Of pytest."""
        chosen = ["-k", self.select] if self.select else []
        return [f"{CONTRACTS}/{self.tests}", *chosen, *(["-m", "not slow"] if self.grid else [])]


def mutant(name: str, path: str, old: str, new: str, tests: str, select: str = "") -> Mutant:
    return Mutant(name, (Edit(path, old, new),), tests, select)


def in_the_full_grid(made: Mutant) -> Mutant:
    """The same mutant, which only a case of the full grid sees."""
    return replace(made, grid=True)


CURATOR = "dpstats/holders/curator.py"
ROWS = "dpstats/holders/rows.py"
RELEASE = "dpstats/mechanisms/release.py"
LINEAR = "dpstats/queries/linear.py"
BASE = "dpstats/queries/base.py"
BLOCKS = "dpstats/queries/blocks.py"
CELLS = "dpstats/queries/cells.py"
COORDINATES = "dpstats/queries/coordinates.py"
DOOR = "dpstats/models/door.py"
LEVELS = "dpstats/queries/levels.py"
NORMS = "dpstats/queries/row_norms.py"
TAILS = "dpstats/queries/tails.py"
QUERIES = "../queries/test_sensitivity.py"
MODEL = "dpstats/models/model.py"
RANDOMIZE = "dpstats/mechanisms/randomize.py"
CLIENTS = "dpstats/holders/clients.py"
LABELS = "dpstats/holders/labels.py"
LABEL_CELLS = "dpstats/queries/label_cells.py"
WHOLE_SUMS = "dpstats/queries/whole_sums.py"
LABEL_QUERIES = "dpstats/queries/labels.py"
COLUMN_SCORES = "dpstats/queries/column_scores.py"
INBOX = "dpstats/holders/collector.py"
WIRE = "dpstats/holders/wire.py"
RECORDS = "dpstats/tables/records.py"
COERCION = "dpstats/tables/coercion.py"

MUTANTS = [
    # noise
    mutant(
        "halves the Gaussian noise and says nothing",
        RELEASE,
        "noise.gaussian(steps, scale / grid)",
        "noise.gaussian(steps, scale / grid / 2)",
        "test_noise.py",
        "sums",
    ),
    mutant(
        "halves the Gaussian noise: seen from outside",
        RELEASE,
        "noise.gaussian(steps, scale / grid)",
        "noise.gaussian(steps, scale / grid / 2)",
        "test_audit.py",
        "each_mechanism",
    ),
    mutant(
        "halves the noise of searches alone: seen from inside",
        RELEASE,
        "noise.gaussian(steps[at : at + 1], scale / grid)",
        "noise.gaussian(steps[at : at + 1], scale / grid / 2)",
        "test_white_box.py",
        "every_release and newton",
    ),
    mutant(
        "takes responses for half as far apart as they are: seen from inside",
        LABEL_QUERIES,
        "return 2 * LABEL_STEPS * self._longest * SAFETY * self._unit",
        "return LABEL_STEPS * self._longest * SAFETY * self._unit",
        "test_white_box.py",
        "every_release and mean-label-curator",
    ),
    in_the_full_grid(
        mutant(
            "halves the Laplace noise",
            RELEASE,
            "noise.laplace(steps, scale / grid)",
            "noise.laplace(steps, scale / grid / 2)",
            "test_noise.py",
            "sums and karwa",
        )
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
        "sums",
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
        BLOCKS,
        "block.keep * (radius / np.maximum(lengths, radius))",
        "block.keep * np.ones_like(lengths)",
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
        "self._max_rows)\n        answer",
        "1)\n        answer",
        "test_sensitivity.py",
        "person and neighbours_move",
    ),
    mutant(
        "answers nobody as a row of missing values",
        ROWS,
        "if isinstance(self._source, Nobody):",
        "if False:",
        "test_private_size.py",
        "nobody_is_a_neighbour",
    ),
    mutant(
        "counts incomplete rows",
        ROWS,
        "self._keep[rows] = raw.keep",
        "self._keep[rows] = True",
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
    in_the_full_grid(
        mutant(
            "releases peeled values without noise",
            RELEASE,
            "released = noise.laplace(steps[chosen], scale / grid) * grid",
            "released = steps[chosen] * grid",
            "test_noise.py",
            "peeling and peel",
        )
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
        "dpstats/protocol/plan.py",
        "for b in range(1, 3)",
        "for b in range(1, 2)",
        "test_transcript.py",
        "every_mechanism_is_charged",
    ),
    in_the_full_grid(
        mutant(
            "asks all rows where a half was planned",
            CURATOR,
            "cut = mechanism.cut(part)",
            "cut = part, mechanism.parts",
            "test_sensitivity.py",
            "half_only",
        )
    ),
    mutant(
        "uses a slot more often than planned",
        CURATOR,
        "self._answered.add((slot, part))",
        "self._rows.answer(query, cut)\n"
        "        self._transcript.append(Release(slot, query.name, query.parameters(), 1.0, 1.0,"
        " mechanism.event, part))",
        "test_transcript.py",
        "equal_the_plan",
    ),
    mutant(
        "doubles the steps of gradient descent",
        "dpstats/estimators/central/published/dp_gd.py",
        "        for t in range(steps):\n",
        "        for t in [*range(steps), *range(steps)]:\n",
        "test_transcript.py",
        "equal_the_plan and dp-gd",
    ),
    Mutant(
        "doubles the steps, past a holder that does not count",
        (
            Edit(
                "dpstats/estimators/central/published/dp_gd.py",
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
        "costs_what_was_asked",
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
        DOOR,
        "    ledger.charge(plan, label, reproducible=noise.reproducible)\n",
        "",
        "test_order.py",
        "charge",
    ),
    mutant(
        "charges after reading",
        DOOR,
        "        ledger = _charged(plan, label, ledger, noise)\n        report",
        "        source.block(0, 1)\n"
        "        ledger = _charged(plan, label, ledger, noise)\n        report",
        "test_order.py",
        "before_the_first_row",
    ),
    mutant(
        "forgets the unit of privacy in the ledger",
        "dpstats/estimators/base.py",
        'return unit or "record"',
        'return "record"',
        "test_transcript.py",
        "ledger_entry and person",
    ),
    mutant(
        "reads rows for a plan",
        MODEL,
        "        n = rows_inside(n, design, privacy, options)\n",
        "        n = rows_inside(n, design, privacy, options)\n        source.block(0, 1)\n",
        "test_order.py",
        "plan_reads_no_row",
    ),
    mutant(
        "uses the number of rows where it is private",
        "dpstats/models/checks.py",
        "guessed_rows(privacy) if private else n if source is None",
        "len(source or ()) if private else n if source is None",
        "test_transcript.py",
        "guess_of_the_row_count",
    ),
    mutant(
        "uses the public guess instead of the noisy count",
        "dpstats/estimators/central/sandwich.py",
        "return max(float(answer.value[0]), columns + 2.0)",
        "return float(holder.plan.n)",
        "test_accuracy.py",
        "statsmodels and add-remove",
    ),
    # results and messages
    mutant(
        "stores a row in the results",
        DOOR,
        "            result = concluded(estimator, holder, design, plan, ledger.state())\n",
        "            result = concluded(estimator, holder, design, plan, ledger.state())\n"
        '            result.estimate.released["first"] = source.block(5, 6).y[0]\n',
        "test_secrets.py",
        "no_canary",
    ),
    mutant(
        "keeps the holder in the results",
        DOOR,
        "            result = concluded(estimator, holder, design, plan, ledger.state())\n",
        "            result = concluded(estimator, holder, design, plan, ledger.state())\n"
        '            object.__setattr__(result.estimate, "_holder", holder)\n',
        "test_secrets.py",
        "canary or holder",
    ),
    mutant(
        "prints a value in an error",
        "dpstats/errors.py",
        'f"The private side stopped with {type(error).__name__}; its message is withheld "',
        'f"The private side stopped with {error}; its message is withheld "',
        "test_secrets.py",
        "quotes_no_row",
    ),
    mutant(
        "lets frames with rows leave with an error",
        DOOR,
        "        raise without_frames(error) from None\n",
        "        raise\n",
        "test_secrets.py",
        "carries_no_frame",
    ),
    mutant(
        "warns where values are missing",
        ROWS,
        "            self._keep[rows] = raw.keep\n",
        "            self._keep[rows] = raw.keep\n"
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
    # messages: what leaves a device
    in_the_full_grid(
        mutant(
            "flips half as many bits",
            "dpstats/channels/binary.py",
            "return outside_words(self.epsilon, 1, 1)",
            "return outside_words(self.epsilon, 1, 1) // 2",
            "test_message_audit.py",
            "responses_stay and label-glm",
        )
    ),
    in_the_full_grid(
        mutant(
            "uses twice the epsilon in the piecewise mechanism",
            "dpstats/channels/piecewise.py",
            "return _law(self.epsilon, _width(self.epsilon))",
            "return _law(2 * self.epsilon, _width(self.epsilon))",
            "test_message_audit.py",
            "responses_stay and label-lasso",
        )
    ),
    mutant(
        "uses twice the epsilon in PrivUnit",
        "dpstats/channels/privunit.py",
        "return cap_at(coordinates, self.epsilon, widest_mean(coordinates, self.epsilon))",
        "return cap_at(coordinates, 2 * self.epsilon, widest_mean(coordinates, self.epsilon))",
        "test_message_audit.py",
        "wire_stay and local-moments",
    ),
    in_the_full_grid(
        mutant(
            "uses twice the epsilon in the hemisphere",
            "dpstats/channels/hemisphere.py",
            "return cap_at(self.dim, self.epsilon, 0.0)",
            "return cap_at(self.dim, 2 * self.epsilon, 0.0)",
            "test_message_audit.py",
            "wire_stay and ldp-iht",
        )
    ),
    in_the_full_grid(
        mutant(
            "takes the radius of the ball for its diameter",
            "dpstats/channels/gaussian.py",
            "return 2 * _ROUNDING * self.event.noise_multiplier",
            "return _ROUNDING * self.event.noise_multiplier",
            "test_message_audit.py",
            "wire_stay and nldp or responses_stay and label-ldp-iht",
        )
    ),
    mutant(
        "randomises what was not clipped",
        RANDOMIZE,
        "projected: Array = rows / np.maximum(np.sqrt(square), 1.0)[:, None]",
        "projected: Array = rows",
        "test_message_independence.py",
        "channel_clips",
    ),
    mutant(
        "clips no number",
        RANDOMIZE,
        "        return np.clip(rows, -1.0, 1.0)\n",
        "        return rows\n",
        "test_message_independence.py",
        "channel_clips",
    ),
    mutant(
        "simulates without the map into the domain",
        RANDOMIZE,
        "_simulate(channel, inside(channel, numbers[block]), noise)",
        "_simulate(channel, numbers[block], noise)",
        "test_message_independence.py",
        "knows_nothing and local",
    ),
    mutant(
        "sends one coordinate in the clear",
        "dpstats/holders/device.py",
        "identity = self._stream.bits(ID_BYTES)",
        "identity = self._stream.bits(ID_BYTES - 8) + value[:1].tobytes()",
        "test_message_independence.py",
        "wire",
    ),
    mutant(
        "sends nothing about an incomplete record",
        "dpstats/holders/device.py",
        "for value in values]",
        "for value in values[block.keep]]",
        "test_message_independence.py",
        "wire",
    ),
    mutant(
        "asks nothing of incomplete records",
        CLIENTS,
        "answers.add(message.rows(block.x[some], y, block.keep[some]))",
        "answers.add(message.rows(block.x[some], y, block.keep[some])[block.keep[some]])",
        "test_message_independence.py",
        "knows_nothing and local",
    ),
    mutant(
        "does not mark messages of a seed",
        "dpstats/holders/device.py",
        "self._seeded = noise.reproducible",
        "self._seeded = False",
        "test_message_wire.py",
        "marked",
    ),
    mutant(
        "asks a user in two rounds",
        CLIENTS,
        "itertools.pairwise([0, *ends, n])",
        "((0, b) for b in [*ends, n])",
        "test_message_independence.py",
        "one_round_only or disjoint",
    ),
    mutant(
        "asks a round again",
        CLIENTS,
        "if part != self._asked or part >= len(self._rounds):",
        "if part >= len(self._rounds):",
        "test_message_independence.py",
        "out_of_turn",
    ),
    mutant(
        "asks rounds that were not planned",
        "dpstats/estimators/local/base.py",
        "Mechanism(SLOT, event, purpose, parts)",
        "Mechanism(SLOT, event, purpose, 1)",
        "test_message_plan.py",
        "equal_the_plan and rounds",
    ),
    mutant(
        "has a device count whose record is astray",
        "dpstats/holders/device.py",
        "counting = drawn(self._stream, self._question.counting, n)",
        "counting = drawn(self._stream, self._question.counting, n) | (marks[:, 0] == 0)",
        "../local/test_local_counters.py",
        "depends_on_no_record",
    ),
    mutant(
        "has a device that counts answer, too",
        CLIENTS,
        "places = places[~counting]",
        "places = places[:]",
        "../local/test_local_counters.py",
        "as_planned_and_no_more",
    ),
    mutant(
        "counts at twice the epsilon",
        "dpstats/holders/device.py",
        "message.channel(question.channel.epsilon)",
        "message.channel(2 * question.channel.epsilon)",
        "../local/test_local_counters.py",
        "as_planned_and_no_more",
    ),
    mutant(
        "takes any share of devices that count for the one that was planned",
        CLIENTS,
        'if question.counting != plan.options.get("counting", 0.0) or counts',
        "if counts",
        "../local/test_local_counters.py",
        "as_planned_and_no_more",
    ),
    mutant(
        "takes any channel for the one that was charged",
        CLIENTS,
        "if channel.event != plan.mechanisms[0].event:",
        "if channel.dim == 0:",
        "test_message_independence.py",
        "another_channel",
    ),
    mutant(
        "lets devices that count send their response, too",
        LABELS,
        "            self._check_devices(query, mechanism.branch)\n",
        "            pass\n",
        "test_message_noise.py",
        "each_device",
    ),
    mutant(
        "adds up costs of responses and of records",
        "dpstats/estimators/base.py",
        "if isinstance(privacy, LabelOnly):",
        "if False:",
        "test_message_plan.py",
        "equal_the_plan and label",
    ),
    mutant(
        "takes any channel of a response for the one that was charged",
        LABELS,
        "if query.channel.event != event:",
        "if query.channel.dim == 0:",
        "test_message_independence.py",
        "another_channel",
    ),
    mutant(
        "counts a message twice",
        INBOX,
        '("duplicate" if opened.identity in self._seen else "")',
        '""',
        "test_message_wire.py",
        "counts_once",
    ),
    mutant(
        "ignores the guarantee on a message",
        WIRE,
        '("epsilon", (epsilon, delta) == (e.epsilon, e.delta)),',
        '("epsilon", True),',
        "test_message_wire.py",
        "another_guarantee",
    ),
    mutant(
        "ignores the round on a message",
        WIRE,
        '("round", turn == e.round),',
        '("round", True),',
        "test_message_wire.py",
        "another_question or earlier",
    ),
    mutant(
        "ignores the question on a message",
        WIRE,
        '("question", question == e.question),',
        '("question", True),',
        "test_message_wire.py",
        "another_question",
    ),
    mutant(
        "takes payloads of any length",
        WIRE,
        "fits = size == payload_bytes",
        "fits = size > 0",
        "test_message_wire.py",
        "another_question",
    ),
    # messages: responses
    mutant(
        "returns responses without noise",
        LABELS,
        "sent[part] = middle + half * decoded[:, 0]",
        "sent[part] = middle + half * (v + 0 * decoded[:, 0])",
        "test_message_independence.py",
        "knows_nothing and label-ols",
    ),
    mutant(
        "adds half of the noise to responses",
        LABELS,
        "sent[part] = middle + half * decoded[:, 0]",
        "sent[part] = middle + 0.5 * half * (decoded[:, 0] + v)",
        "test_message_noise.py",
        "responses_have_the_declared and label-ols",
    ),
    mutant(
        "counts where responses lie without noise",
        LABELS,
        "total += channel.decode(messages(channel, mine, self._noise)).sum(axis=0)",
        "total += mine.sum(axis=0) + 0 * messages(channel, mine, self._noise).sum()",
        "test_message_noise.py",
        "devices_that_count and label-ols",
    ),
    mutant(
        "takes half of the sensitivity of scores",
        COLUMN_SCORES,
        "return 2 * LABEL_STEPS * max(self._largest, 1.0) * SAFETY * self._unit",
        "return LABEL_STEPS * max(self._largest, 1.0) * SAFETY * self._unit",
        "test_message_noise.py",
        "neighbours_move and curator-omp",
    ),
    mutant(
        "takes half of the width of an interval",
        LABEL_QUERIES,
        "return 2 * LABEL_STEPS * self._longest * SAFETY * self._unit",
        "return LABEL_STEPS * self._longest * SAFETY * self._unit",
        "test_message_noise.py",
        "neighbours_move",
    ),
    mutant(
        "takes rows for shorter than they are",
        LABEL_QUERIES,
        "np.linalg.norm(steps, order, axis=1)",
        "0.9 * np.linalg.norm(steps, order, axis=1)",
        "test_message_noise.py",
        "neighbours_move",
    ),
    mutant(
        "does not hold rows to the length of which the sensitivity was computed",
        WHOLE_SUMS,
        "    if over.size:",
        "    if not over.size:",
        "../queries/test_whole_sums.py",
        "grow_after",
    ),
    mutant(
        "takes L2 norms for Laplace noise",
        LABEL_QUERIES,
        'order = 1 if self.norm == "l1" else 2',
        "order = 2",
        "test_message_noise.py",
        "neighbours_move and ols",
    ),
    in_the_full_grid(
        mutant(
            "does not hold a response to its own interval",
            "dpstats/queries/label_held.py",
            "np.asarray(np.clip(inside / half[part], -1.0, 1.0), dtype=np.float64)",
            "np.asarray(inside / half[part], dtype=np.float64)",
            "test_message_noise.py",
            "neighbours_move and glm",
        )
    ),
    mutant(
        "does not clip the residuals of responses",
        LABEL_QUERIES,
        "share: Array = np.minimum(rest / _at(query.clip, part), 1.0) ** 2",
        "share: Array = (rest / _at(query.clip, part)) ** 2",
        "test_message_noise.py",
        "neighbours_move",
    ),
    mutant(
        "halves the noise on sums of responses",
        LABELS,
        "query.total(v), sensitivity, event, self._noise",
        "query.total(v), sensitivity / 2, event, self._noise",
        "test_message_noise.py",
        "neighbours_move or noise_that_was_planned",
    ),
    mutant(
        "answers a slot of responses again",
        LABELS,
        "if slot in self._answered or part != 0:",
        "if part != 0:",
        "test_message_plan.py",
        "answered_twice and label",
    ),
    # messages: ledger, results and errors
    mutant(
        "charges nothing where devices randomise",
        DOOR,
        "    ledger.charge(plan, label, reproducible=noise.reproducible)\n",
        "    _ = isinstance(plan.privacy, Local) or ledger.charge(\n"
        "        plan, label, reproducible=noise.reproducible\n"
        "    )\n",
        "test_message_plan.py",
        "charge and local",
    ),
    mutant(
        "charges nothing where covariates are public",
        DOOR,
        "    ledger.charge(plan, label, reproducible=noise.reproducible)\n",
        "    _ = isinstance(plan.privacy, LabelOnly) or ledger.charge(\n"
        "        plan, label, reproducible=noise.reproducible\n"
        "    )\n",
        "test_message_plan.py",
        "charge and label",
    ),
    mutant(
        "charges after reading responses",
        DOOR,
        "        ledger = _charged(plan, label, ledger, noise)\n        report",
        "        source.block(0, 1)\n"
        "        ledger = _charged(plan, label, ledger, noise)\n        report",
        "test_message_plan.py",
        "before_the_first_row",
    ),
    mutant(
        "copies responses for a plan",
        "dpstats/design/public_design.py",
        "used = {name: KeptEntries(column, kept) for name, column in columns.items()}",
        "used = {name: column[kept] for name, column in columns.items()}",
        "test_message_plan.py",
        "plan_reads_nothing and label",
    ),
    mutant(
        "keeps public rows in the results",
        DOOR,
        "        design=design.without_rows(),\n",
        "        design=design,\n",
        "test_message_secrets.py",
        "no_canary_and",
    ),
    mutant(
        "stores a response in the results",
        DOOR,
        "            result = concluded(estimator, holder, design, plan, ledger.state())\n",
        "            result = concluded(estimator, holder, design, plan, ledger.state())\n"
        '            result.estimate.released["first"] = source.block(5, 6).y[0]\n',
        "test_message_secrets.py",
        "no_canary",
    ),
    mutant(
        "keeps who holds the messages",
        DOOR,
        "            result = concluded(estimator, holder, design, plan, ledger.state())\n",
        "            result = concluded(estimator, holder, design, plan, ledger.state())\n"
        '            object.__setattr__(result.estimate, "_holder", holder)\n',
        "test_message_secrets.py",
        "canary or holder",
    ),
    mutant(
        "prints what was about to be randomised",
        "dpstats/errors.py",
        'f"The private side stopped with {type(error).__name__}; its message is withheld "',
        'f"The private side stopped with {error}; its message is withheld "',
        "test_message_secrets.py",
        "quotes_no_row",
    ),
    mutant(
        "lets frames of devices leave with an error",
        DOOR,
        "        raise without_frames(error) from None\n",
        "        raise\n",
        "test_message_secrets.py",
        "carries_no_frame",
    ),
    mutant(
        "warns where responses are missing",
        LABELS,
        "        super().__init__(plan, noise, on_answer)\n",
        "        if not block.keep.all():\n"
        '            __import__("warnings").warn(f"{(~block.keep).sum()} missing")\n'
        "        super().__init__(plan, noise, on_answer)\n",
        "test_message_secrets.py",
        "printed_logged and label",
    ),
    # malformed records, hostile cells, private sizes
    mutant(
        "lets an open quote end where the line does",
        RECORDS,
        "csv.reader([text], strict=True, ",
        "csv.reader([text], ",
        "test_malformed_record.py",
        "no_record",
    ),
    mutant(
        "ends records at line feeds within quotes",
        RECORDS,
        "            while opened:\n",
        "            while False:\n",
        "test_csv_records.py",
        "writer_that_quotes",
    ),
    mutant(
        "forgets what a malformed record looked at",
        RECORDS,
        "                ahead.extendleft(more for more in reversed(taken[1:]) if more)\n",
        "",
        "test_csv_records.py",
        "closed_record or left_open",
    ),
    mutant(
        "takes text after a closing quote for more of a cell",
        RECORDS,
        "return None if found is None else",
        "return True if found is None else",
        "test_csv_records.py",
        "closed_record or left_open",
    ),
    mutant(
        "counts lines where records are declared by quotes",
        RECORDS,
        'if how.records == "quoted" and',
        "if False and",
        "test_csv_records.py",
        "note_of_many_lines",
    ),
    mutant(
        "drops what is no record",
        RECORDS,
        "sound = [r if len(r) == len(names) else nothing for r in records]",
        "sound = [r for r in records if len(r) == len(names)]",
        "test_malformed_record.py",
        "malformed_record_moves and first or alone",
    ),
    mutant(
        "shifts the fields of a long record",
        RECORDS,
        "sound = [r if len(r) == len(names) else nothing for r in records]",
        "sound = [[*r, *nothing][: len(names)] for r in records]",
        "test_malformed_record.py",
        "no_record",
    ),
    mutant(
        "reads equal cells of all types as the first of them",
        COERCION,
        "        if not text.all():\n",
        "        if False:\n",
        "test_hostile_cell.py",
        "equal_cells or alone",
    ),
    mutant(
        "lets a cell say how it is read",
        COERCION,
        "        return str.__str__(value)\n",
        "        return str(value)\n",
        "test_hostile_cell.py",
        "means",
    ),
    mutant(
        "lets what a cell raises leave",
        COERCION,
        "    except Exception:  # whatever a cell holds, it says so to nobody\n",
        "    except ValueError:\n",
        "test_hostile_cell.py",
        "range_is_bought and broken",
    ),
    mutant(
        "lets a unit be named by any object",
        "dpstats/design/rows.py",
        "    unit = to_keys(unit) if is_object(unit) else unit\n",
        "",
        "test_hostile_cell.py",
        "range_is_bought",
    ),
    mutant(
        "halves the sensitivity of the cells of columns",
        CELLS,
        "norm = max_rows * math.sqrt(len(self.edges))",
        "norm = max_rows * math.sqrt(len(self.edges)) / 2",
        "test_sensitivity.py",
        "move_no_answer and ols-newton",
    ),
    mutant(
        "halves the sensitivity of values by what is declared",
        CELLS,
        "norm = max_rows * math.sqrt(self.inputs + self.units)",
        "norm = max_rows * math.sqrt(self.inputs + self.units) / 2",
        "test_sensitivity.py",
        "move_no_answer and check-counts",
    ),
    mutant(
        "halves the sensitivity of counts of values astray",
        CELLS,
        "Contribution.ACUTE.sensitivity(max_rows * math.sqrt(groups), neighbors)",
        "Contribution.ACUTE.sensitivity(max_rows * math.sqrt(groups) / 2, neighbors)",
        "test_sensitivity.py",
        "move_no_answer and ols-newton",
    ),
    mutant(
        "halves the sensitivity of counts of values astray for Laplace noise",
        CELLS,
        "Contribution.SIGNED.sensitivity(float(max_rows * groups), neighbors)",
        "Contribution.SIGNED.sensitivity(float(max_rows * groups) / 2, neighbors)",
        "test_sensitivity.py",
        "move_no_answer and mean-clipped",
    ),
    mutant(
        "halves the sensitivity of the cells of responses",
        LABEL_CELLS,
        'return 2.0 if norm == "l1" else math.sqrt(2.0)',
        'return 1.0 if norm == "l1" else math.sqrt(0.5)',
        "../label_only/test_holder.py",
        "moves_a_sum",
    ),
    mutant(
        "refuses a table of nobody",
        CURATOR,
        "self._source = source if len(source) else Nobody(source, design)",
        "self._source = source",
        "test_private_size.py",
        "contributes_nothing and clipped",
    ),
    mutant(
        "adds any number of rows in int64",
        ROWS,
        "[np.sum([total.astype(object) for total in every], axis=0) for every in by_query]",
        "[np.sum(list(every), axis=0) for every in by_query]",
        "test_private_size.py",
        "beyond_int64",
    ),
    mutant(
        "lets an answer leave the range of its steps",
        RELEASE,
        "np.clip(np.rint(answer / grid), -_MOST_STEPS, _MOST_STEPS)",
        "np.rint(answer / grid)",
        "test_private_size.py",
        "of_any_size",
    ),
    in_the_full_grid(
        mutant(
            "clips a bounded score about its centre, not about nothing",
            NORMS,
            "left = left - self.family.centre(predictor(block, self.beta), limit)",
            "limit = limit + np.abs(self.family.centre(predictor(block, self.beta), limit))",
            QUERIES,
            "WhitenedScore",
        )
    ),
    mutant(
        "halves the sensitivity of scores of levels",
        NORMS,
        "SIGNED.sensitivity(max_rows * (self.clip - self.inner), neighbors)",
        "SIGNED.sensitivity(max_rows * (self.clip - self.inner) / 2, neighbors)",
        QUERIES,
        "LevelScore",
    ),
    mutant(
        "halves the sensitivity of squares of scores of levels",
        NORMS,
        "ACUTE.sensitivity((max_rows * self.clip) ** 2, neighbors)",
        "ACUTE.sensitivity((max_rows * self.clip) ** 2 / 2, neighbors)",
        QUERIES,
        "LevelSquares",
    ),
    mutant(
        "halves the sensitivity of the curvature of levels",
        LEVELS,
        "ACUTE.sensitivity(max_rows * (self.radius**2 + more), neighbors)",
        "ACUTE.sensitivity(max_rows * (self.radius**2 + more) / 2, neighbors)",
        QUERIES,
        "LevelCurvature",
    ),
    mutant(
        "clips no score of levels",
        LEVELS,
        "np.minimum(1.0, clip / np.maximum(longest, _LEAST))",
        "np.minimum(1.0, np.inf * clip)",
        QUERIES,
        "LevelScore",
    ),
    mutant(
        "halves the sensitivity of residuals and their squares",
        TAILS,
        "return max_rows * each * self.clip * _SQUARES",
        "return max_rows * each * self.clip * _SQUARES / 2",
        QUERIES,
        "ResidualSums",
    ),
    mutant(
        "clips no residual of a dispersion",
        TAILS,
        "truncate(np.clip(r, -self.clip, self.clip), self._grid)",
        "truncate(r, self._grid)",
        QUERIES,
        "ResidualSums",
    ),
]
