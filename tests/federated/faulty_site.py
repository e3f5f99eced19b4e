"""Sites that fail in one way each.

``python -m tests.federated.faulty_site NAME=FAULT,NAME=FAULT site run ...``, where ``{name}`` in
what follows is the site's. Several are threads of one process, each with its own connection.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpstats.cli import main
from dpstats.federated import carriers
from dpstats.federated.network.wire import Serving
from dpstats.federated.replies import Replies

Answer = Callable[[bytes], bytes]


def is_call(message: bytes) -> bool:
    return b"dpstats.call" in message[:600]


def killed_before(answer: Answer) -> Answer:
    return lambda message: answer(message) if is_call(message) else os._exit(9)


def killed_after(answer: Answer) -> Answer:
    Replies.keep = lambda *_: os._exit(9)  # type: ignore[method-assign, assignment]
    return answer


def slow(answer: Answer) -> Answer:
    """Late, and only then does it look at the question."""

    def answered(message: bytes) -> bytes:
        if not is_call(message):
            time.sleep(float(Path("slow").read_text()))
        return answer(message)

    return answered


def garbage(answer: Answer) -> Answer:
    return lambda message: answer(message) if is_call(message) else b"\xff{not JSON" * 100


def wrong(answer: Answer) -> Answer:
    """An answer to a question that nobody asked."""

    def answered(message: bytes) -> bytes:
        reply = answer(message)
        return reply if is_call(message) else reply.replace(b'"digest":"', b'"digest":"0')

    return answered


def infinite(answer: Answer) -> Answer:
    """Estimates that are no numbers to combine."""

    def answered(message: bytes) -> bytes:
        reply = answer(message)
        if is_call(message):
            return reply
        data = json.loads(reply)
        data["result"]["estimate"]["params"][0] = {"nonfinite": "inf"}
        return json.dumps(data).encode()

    return answered


def twice(answer: Answer) -> Answer:
    """It hands over every reply two times."""
    once = Serving.reply

    def again(self: Serving, *given: Any) -> None:
        once(self, *given)
        try:
            once(self, *given)
        except Exception as error:
            print("second reply:", type(error).__name__, file=sys.stderr, flush=True)

    Serving.reply = again  # type: ignore[method-assign]
    return answer


def healthy(answer: Answer) -> Answer:
    return answer


FAULTS = {
    f.__name__: f
    for f in (killed_before, killed_after, slow, garbage, wrong, infinite, twice, healthy)
}


if __name__ == "__main__":
    names, *template = sys.argv[1:]
    faults = dict(pair.split("=") for pair in names.split(","))
    whole = carriers.answering

    def answering(site: Any, *given: Any) -> Answer:
        if site.name == "ceiling":
            site = replace(site, max_epsilon=0.5)
        return FAULTS[faults[site.name]](whole(site, *given))

    carriers.answering = answering
    crowd = [
        threading.Thread(target=main, args=([part.replace("{name}", name) for part in template],))
        for name in faults
    ]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
