"""Devices by the central limit theorem: messages averaged without drawing each of them.

The average of n decoded messages is that of what devices hold, plus normal noise of the channel's
variance. Fits of a million users take a second; the law is exact up to the normal approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpstats.estimators.local.pool import coordinate_variance
from dpstats.protocol import DeviceQuestion, LocalMethod, Messages, Plan
from dpstats.queries import MomentMessage

BLOCK = 20_000


@dataclass
class FastDevices:
    """A LocalHolder over internal rows x (n, d) and responses y (n,), already in random order."""

    x: Any
    y: Any
    plan: Plan
    rng: np.random.Generator
    public: Any = None
    questions: list[DeviceQuestion] = field(default_factory=list)

    def collect(self, question: DeviceQuestion, part: int) -> Messages:
        self.questions.append(question)
        shares = self.plan.options["shares"]
        ends = np.rint(np.cumsum((0.0, *shares)) / sum(shares) * len(self.y)).astype(int)
        message, channel = question.message, question.channel
        count = int(ends[part + 1] - ends[part])
        total = np.zeros(message.dim)
        first = min(count, BLOCK)  # second moments of the first rows will do
        head = slice(ends[part], ends[part] + first)
        rows = message.rows(self.x[head], self.y[head], np.ones(first, bool))
        outer = rows.T @ rows
        for start in range(ends[part], ends[part + 1], BLOCK):
            here = slice(start, min(start + BLOCK, ends[part + 1]))
            total += average(message, self.x[here], self.y[here]) * (here.stop - start)
        noise = coordinate_variance(channel)
        mean = total / count + self.rng.normal(size=message.dim) * np.sqrt(noise / count)
        return Messages(count, mean, outer / first + noise * np.eye(message.dim))


def average(message: MomentMessage, x: Any, y: Any) -> Any:
    """Mean of the messages; where they are weighted moments, without making each of them."""
    if message.logistic:
        return message.rows(x, y, np.ones(len(y), bool)).mean(axis=0)
    made = np.zeros(message.dim)
    square, part = message.weight(x) ** 2, x[:, message.asked]
    weighted = part * square[:, None]
    (i, j), (moments, score) = message._pairs, message._units
    if i.size:
        made[: i.size] = (weighted.T @ part)[i, j] / moments
    if message.share < 1:
        residual = y if message.theta is None else y - x @ message.theta
        if message.gate:
            inside = np.abs(residual) < message.clip
            made[-2:] = np.array([square @ inside, square @ ~inside]) / message._gate_unit
        made[message._scores] = weighted.T @ np.clip(residual, -message.clip, message.clip) / score
    return made / len(y)


def fit(method: LocalMethod, design: Any, plan: Plan, x: Any, y: Any, rng: Any, public: Any = None):
    """Estimate and the questions asked."""
    devices = FastDevices(x, y, plan, rng, public)
    return method.fit(devices, design, plan), devices.questions
