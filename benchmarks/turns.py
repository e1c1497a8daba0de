"""Two processes that take turns: one works while the other waits for its next line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Turns:
    """Called after each piece of work; answers a line of input with one block of pieces.

    Parameters
    ----------
    seconds : float
        Least duration of a block.
    skip : int
        Pieces before the first block: compilation, caches.
    prepare : callable
        Called with the number of threads that the coming block is to use.
    """

    def __init__(
        self, seconds: float, skip: int = 3, prepare: Callable[[int], object] = lambda _: None
    ) -> None:
        self.seconds, self.left, self.prepare = seconds, skip, prepare
        self.count, self.begin, self.cpu = 0, 0.0, 0.0

    def __call__(self, count: int) -> None:
        """So many units are done since the last call."""
        if self.left:
            self.left -= 1
            if not self.left:
                self._wait({"ready": True})
            return
        self.count += count
        elapsed = time.perf_counter() - self.begin
        if elapsed >= self.seconds:
            cpu = time.process_time() - self.cpu  # of all threads
            self._wait({"rate": self.count / elapsed, "cpu_rate": self.count / cpu})

    def _wait(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)
        line = sys.stdin.readline()
        if not line:
            raise SystemExit
        self.prepare(int(line))
        self.count, self.begin, self.cpu = 0, time.perf_counter(), time.process_time()


class Worker:
    """A process that works a block when told to."""

    def __init__(self, python: str, script: str, arguments: Sequence[str]) -> None:
        # as many threads as its libraries choose
        kept = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
        self.process = subprocess.Popen(
            [python, "-W", "ignore", str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kept,
        )
        self._read()

    def block(self, threads: int) -> tuple[float, float]:
        """Units a second, and units a second of processor time, in one block."""
        answer = self.ask(threads)
        return answer["rate"], answer["cpu_rate"]

    def ask(self, message: Any) -> dict[str, Any]:
        """The answer to a line of JSON."""
        self._say(message)
        return self._read()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _say(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):  # libraries say other things
                message: dict[str, Any] = json.loads(line)
                return message
        raise RuntimeError(self.process.communicate()[1][-2_000:])


def blocks_together(workers: Sequence[Worker]) -> tuple[float, float]:
    """As `block`, for several processes that work at the same time, one thread each."""
    for worker in workers:
        worker._say(1)
    answers = [worker._read() for worker in workers]
    rate = sum(answer["rate"] for answer in answers)
    return rate, rate / sum(answer["rate"] / answer["cpu_rate"] for answer in answers)
