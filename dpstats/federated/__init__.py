"""Fits over sites that keep their rows: a question, the site that answers it, what is collected."""

from dpstats.federated.choice import by_public_facts, by_public_facts_over
from dpstats.federated.collect import (
    ask,
    combine,
    fit,
    plan_over,
    question_for,
)
from dpstats.federated.question import Question
from dpstats.federated.site import Site, Sites

__all__ = [
    "Question",
    "Site",
    "Sites",
    "ask",
    "by_public_facts",
    "by_public_facts_over",
    "combine",
    "fit",
    "plan_over",
    "question_for",
]
