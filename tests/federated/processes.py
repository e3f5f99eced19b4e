"""A Flower link and sites as real processes on this machine, for tests and for timing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

import dpstats as dp
from tests.federated.cases import FORMULA, SCHEMA

ROOT = Path(__file__).parents[2]
SECONDS = 300.0  # that a process may take to be there
USUAL, MOST = 15.0, 6.0  # seconds that a process takes to be there; how much longer all may take
JOIN, REPLY, SLOW = 60, 90, 130  # seconds for sites to join and to reply; of one that is late


@dataclass
class Federation:
    """A folder with what each party has, and the processes that run in it.

    With `keys` the link has TLS and lets in registered sites only, questions are signed, and
    replies are.
    """

    folder: Path
    keys: bool = False
    formula: str = FORMULA
    schema: dp.Schema = SCHEMA
    port: int = 0
    pace: float = 1.0
    began: dict[str, float] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.schema.save(self.folder / "schema.json")
        (self.folder / "secret").write_bytes(os.urandom(48))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @property
    def link(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secured(self) -> list[str]:
        """How the link is known."""
        return ["--root-certificates", "ca.crt"] if self.keys else ["--insecure"]

    def start_link(self) -> None:
        """As the documentation starts it."""
        tls = ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "link.crt"]
        tls += ["--ssl-keyfile", "link.pem", "--enable-supernode-auth"]
        command = [
            str(Path(sys.executable).with_name("flower-superlink")),
            *(tls if self.keys else ["--insecure"]),
            *("--host", "127.0.0.1", "--port", str(self.port), "--isolation", "process"),
            *("--superexec-auth-secret-file", "secret", "--database", "link.db"),
            "--disable-runtime-dependency-installation",
        ]
        self._start("link", command)
        self._await_start("link", "Application startup complete")

    def add_site(self, name: str, rows: Any, epsilon: float = 2.0) -> None:
        """Its rows and its ledger."""
        pd.DataFrame(rows).to_parquet(self.folder / f"{name}.parquet")
        dp.Ledger.open(self.folder / f"{name}.ledger", epsilon, 1e-5)

    def start_site(self, name: str, *more: str, fault: str = "", key: str = "") -> None:
        """``dpstats site run``, or one that fails in a way."""
        module = ["tests.federated.faulty_site", f"{name}={fault}"] if fault else ["dpstats"]
        command = self._site(name, key or name, *more)
        self._start(name, [sys.executable, "-m", *module, *command])

    def start_crowd(self, process: str, **faults: str) -> None:
        """Sites that fail, in one process."""
        names = ",".join(f"{name}={fault}" for name, fault in faults.items())
        module = ["tests.federated.faulty_site", names]
        self._start(process, [sys.executable, "-m", *module, *self._site("{name}", "{name}")])

    def _site(self, name: str, key: str, *more: str) -> list[str]:
        known = ["--key", key, "--askers", "analyst.pub"] if self.keys else []
        return [
            *("site", "run", "--link", self.link, *self.secured, "--name", name, *known),
            *("--data", f"{name}.parquet", "--schema", "schema.json"),
            *("--ledger", f"{name}.ledger", "--max-epsilon", "1", "--max-delta", "1e-6", *more),
        ]

    def await_site(self, name: str) -> None:
        self._await_start(name, f"at {self.link}")

    def await_words(self, name: str, words: str) -> None:
        self._wait(name, words)

    def await_crowd(self, process: str, *names: str) -> None:
        for name in names:
            self._await_start(process, f"{name}: at {self.link}")

    def begin_fit(
        self, *more: str, sites: str, key: str = "analyst", join: float = JOIN
    ) -> subprocess.Popen[str]:
        """``dpstats federated fit``, as it runs."""
        known = ["--key", key, "--site-keys", "known"] if self.keys else []
        command = [
            *(sys.executable, "-m", "dpstats", "federated", "fit", self.formula),
            *("--schema", "schema.json", "--target", "home", "--epsilon", "1", "--delta", "1e-6"),
            *("--link", self.link, *self.secured, "--secret", "secret", *known),
            *("--sites", sites, "--join-timeout", str(join * self.pace)),
            *("--timeout", str(REPLY * self.pace)),
            *("--out", "fit.json", *more),
        ]
        (self.folder / "fit.json").unlink(missing_ok=True)
        (self.folder / "slow").write_text(str(SLOW * self.pace))  # later than who asks waits, now
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe, text=True
        )

    def fit(
        self, *more: str, sites: str, key: str = "analyst", join: float = JOIN
    ) -> tuple[int, str, str]:
        """Its status, standard output and standard error."""
        running = self.begin_fit(*more, sites=sites, key=key, join=join)
        out, err = running.communicate(timeout=4 * SECONDS * self.pace)
        return running.returncode, out, " ".join(err.split())

    def make_keys(self, *sites: str) -> None:
        """A certificate of the link and keys of all parties, as the documentation makes them."""
        request = "openssl req -newkey rsa:2048 -nodes"
        for command in (
            f"{request} -x509 -days 9 -subj /CN=sites -keyout ca.pem -out ca.crt",
            f"{request} -x509 -days 9 -subj /CN=others -keyout other.pem -out other.crt",
            f"{request} -subj /CN=link -keyout link.pem -out link.csr",
            "openssl x509 -req -in link.csr -CA ca.crt -CAkey ca.pem -CAcreateserial -days 9 "
            "-extfile link.ext -out link.crt",
            *(f"ssh-keygen -q -t ecdsa -b 384 -f {name}" for name in (*sites, "analyst", "spy")),
        ):
            (self.folder / "link.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
            more = ["-N", ""] if command.startswith("ssh") else []
            subprocess.run(
                [*command.split(), *more], cwd=self.folder, check=True, capture_output=True
            )
        (self.folder / "known").mkdir()
        for name in sites:
            pub = (self.folder / f"{name}.pub").read_bytes()
            (self.folder / "known" / f"{name}.pub").write_bytes(pub)
        (self.folder / "flwr").mkdir()
        (self.folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "ours"\n\n[superlink.ours]\naddress = "{self.link}"\n'
            f'root-certificates = "{self.folder / "ca.crt"}"\n'
        )

    def register(self, *names: str) -> None:
        """Let keys in at the link."""
        for name in names:
            command = [str(Path(sys.executable).with_name("flwr"))]
            subprocess.run(
                [*command, "supernode", "register", f"{name}.pub", "ours"],
                cwd=self.folder,
                env=self.env,
                check=True,
                capture_output=True,
            )

    @property
    def result(self) -> Any:
        return dp.load(self.folder / "fit.json")

    def charges(self, name: str) -> int:
        """Entries of a site's ledger."""
        return len(dp.Ledger.open(self.folder / f"{name}.ledger").entries)

    def kill(self, name: str) -> None:
        """At once, without a word."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def memory(self, name: str) -> int:
        """Resident bytes of a process."""
        status = Path(f"/proc/{self.running[name].pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    @property
    def env(self) -> dict[str, str]:
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        home = {"FLWR_HOME": str(self.folder / "flwr"), "PYTHONPATH": str(ROOT)}
        given = {
            k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"
        }  # it is slow
        return {**given, **quiet, **home, "OPENBLAS_NUM_THREADS": "1"}

    def _start(self, name: str, command: list[str]) -> None:
        self.began[name] = time.monotonic()
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                command, cwd=self.folder, env=self.env, stdout=log, stderr=log
            )

    def _await_start(self, name: str, words: str) -> None:
        """On a machine that is busy with other things everybody has longer from then on."""
        self._wait(name, words)
        taken = time.monotonic() - self.began[name]
        self.pace = min(MOST, max(self.pace, taken / USUAL))

    def _wait(self, name: str, words: str) -> None:
        until = time.monotonic() + SECONDS * self.pace
        while words not in self.said(name):
            if self.running[name].poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{name} did not start: {self.said(name)[-2000:]}")
            time.sleep(0.1)

    def await_end(self, name: str) -> int:
        return self.running.pop(name).wait(SECONDS * self.pace)

    def await_charges(self, name: str, number: int) -> None:
        until = time.monotonic() + SECONDS * self.pace
        while self.charges(name) < number:
            assert time.monotonic() < until, f"{name} charged {self.charges(name)}"
            time.sleep(0.1)

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


@contextmanager
def federation(folder: Path, **given: Any) -> Iterator[Federation]:
    made = Federation(folder, **given)
    try:
        yield made
    finally:
        made.stop()
