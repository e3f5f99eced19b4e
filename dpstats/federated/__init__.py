"""Fits over sites that keep their rows: a question, the site that answers it, what is collected."""

from dpstats.federated.collect import (
    ask,
    combine,
    fit,
    plan_over,
    question_for,
    rounds_if_better,
    rounds_if_better_over,
)
from dpstats.federated.question import Question
from dpstats.federated.site import Site, Sites

__all__ = [
    "Question",
    "Site",
    "Sites",
    "ask",
    "combine",
    "fit",
    "plan_over",
    "question_for",
    "rounds_if_better",
    "rounds_if_better_over",
]
