"""Runs a plan: every job as soon as what it needs is there, a failed one without stopping the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Literal

from smoothheads.errors import SmoothheadsError
from smoothheads.runs.executors import Executor, Future
from smoothheads.studies import reading
from smoothheads.studies.jobs import ELSEWHERE, StudyJob, fraction, perform
from smoothheads.studies.plan import Item, StudyPlan, needs
from smoothheads.studies.store import StudyStore

State = Literal["done", "failed", "running", "waiting"]
POLL_SECONDS = 2.0
ELSEWHERE_SECONDS = 10.0
"""Until an item that another study is making is asked for again."""
LEAST_SECONDS = 3.0
"""Of work, before what is left is judged by it."""
STATUS_SECONDS = 30.0
"""Between two calls of `on_status`, which looks at everything on the disk."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where a study stands."""

    states: Mapping[str, State]
    """By the item's key."""
    seconds_left: float
    """Of work, not of the clock; nan where nothing was measured."""

    def count(self, state: State) -> int:
        return sum(each == state for each in self.states.values())


OnStatus = Callable[[Status], None]


def run(
    plan: StudyPlan,
    store: StudyStore,
    executor: Executor,
    costs: Mapping[str, float],
    on_status: OnStatus | None = None,
) -> dict[str, str]:
    """Makes what is missing; messages of what failed, by key. `costs` are seconds of each item.

    What another study on the same store is making is waited for.
    """
    failed: dict[str, str] = {}
    not_before: dict[str, float] = {}
    done = {item.key for item in plan.items if store.facts(item) is not None}
    waiting = [item for item in plan.longest_first(costs).items if item.key not in done]
    for item in waiting:
        store.forget_failure(item)
    running: dict[Future[str | None], Item] = {}
    said = time.monotonic()
    with closing(executor), store.noting(costs, executor.slots):
        while waiting or running:
            waiting = _fail_dependents(waiting, failed)
            for item in [each for each in waiting if all(n.key in done for n in needs(each))]:
                if len(running) >= executor.slots:
                    break
                if not_before.get(item.key, 0.0) > time.monotonic():
                    continue
                running[executor.submit(perform, StudyJob(item, store))] = item
                waiting.remove(item)
            if waiting and not running:  # all that is left is made elsewhere, or needs it
                time.sleep(POLL_SECONDS)
            for future in executor.wait(POLL_SECONDS) if running else ():
                item = running.pop(future)
                try:
                    error = future.result()
                except SmoothheadsError as lost:  # the worker could not note it itself
                    error = str(lost)
                    store.fail(item, error)
                if error is None:
                    done.add(item.key)
                elif error == ELSEWHERE:
                    waiting.append(item)
                    not_before[item.key] = time.monotonic() + ELSEWHERE_SECONDS
                else:
                    failed[item.key] = error
            if on_status and time.monotonic() - said >= STATUS_SECONDS:
                said = time.monotonic()
                on_status(_status(plan, store, costs, {item.key for item in running.values()}, failed))
    return failed


def noted_estimate(plan: StudyPlan, store: StudyStore) -> tuple[dict[str, float], int] | None:
    """Costs of the items and jobs at once, as a study found them that makes all that is missing here, in
    another terminal: trials beside it would find a busy machine. None where none runs."""
    missing = [item.key for item in plan.items if store.facts(item) is None]
    for note in store.noted():
        with suppress(KeyError, TypeError, ValueError):  # damaged
            seconds = {key: float(value) for key, value in dict(note["seconds"]).items()}
            jobs = int(note["jobs"])
            if jobs > 0 and all(key in seconds for key in missing):
                return seconds, jobs
    return None


def status(plan: StudyPlan, store: StudyStore, costs: Mapping[str, float]) -> Status:
    """Of a study that may be running elsewhere; what has begun counts as running."""
    running = {item.key for item in plan.items if store.facts(item) is None and store.artefact(item).exists()}
    failed = {item.key: text for item in plan.items if (text := store.failure(item))}
    return _status(plan, store, costs, running, failed)


def _status(
    plan: StudyPlan,
    store: StudyStore,
    costs: Mapping[str, float],
    running: set[str],
    failed: Mapping[str, str],
) -> Status:
    states: dict[str, State] = {}
    kinds: dict[type[Item], _Pace] = {}
    for item in plan.items:
        pace, guess = kinds.setdefault(type(item), _Pace()), costs.get(item.key, float("nan"))
        if (facts := store.facts(item)) is not None:
            states[item.key] = "done"
            if guess > 0 and "seconds" in facts:
                pace.guessed += guess * facts.get("share", 1.0)
                pace.measured += facts["seconds"]
            continue
        if item.key in failed:
            states[item.key] = "failed"
            continue
        states[item.key] = "running" if item.key in running else "waiting"
        made = fraction(item, store)
        pace.left += guess * (1 - made)
        if guess > 0 and made > 0:
            pace.guessed += guess * made
            pace.measured += reading.seconds_written(store.artefact(item))
    whole = _Pace(sum(p.guessed for p in kinds.values()), sum(p.measured for p in kinds.values()))
    return Status(states, sum(pace.left * (pace.slower or whole.slower or 1.0) for pace in kinds.values()))


@dataclass(slots=True)
class _Pace:
    """What was made of one kind of items, or of all, in seconds: as a trial guessed it, and as it took."""

    guessed: float = 0.0
    measured: float = 0.0
    left: float = 0.0
    """As guessed."""

    @property
    def slower(self) -> float | None:
        """How many times as long as guessed it took; none where too little was made to tell."""
        return self.measured / self.guessed if self.guessed and self.measured >= LEAST_SECONDS else None


def _fail_dependents(waiting: list[Item], failed: dict[str, str]) -> list[Item]:
    kept = []
    for item in waiting:
        broken = [failed[n.key] for n in needs(item) if n.key in failed]
        if broken:
            failed[item.key] = broken[0]
        else:
            kept.append(item)
    return kept
