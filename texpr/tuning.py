"""Tuning: the best few choices of a mapping, measured beside the compiler's own.

    softmax_0   as it is       10.2 us  1.00
    softmax_0   threads 512     8.7 us  0.85      taken

The choices of the least price (`polyhedral/map/alternatives.py`) of each launch are compiled and run on the same
arrays, in rounds: in each of them all choices take turns in an order that is drawn anew, each with a lead-in and then a
burst that is timed. What counts is the median of how many times as long as the compiler's own mapping a choice takes in
the same round: it is faster where that is less than one by more than MARGIN, and it was so in most rounds (SURE). Of
several launches the fastest choices are then measured together. What is taken is compared with the interpreter before
it is kept.
"""

import os
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from texpr import tuned
from texpr.alternatives import changed, form, said
from texpr.grammar.diagnostics import Diagnostic, TExprError, fail
from texpr.grammar.records import dataclass
from texpr.grammar.strides import address_name
from texpr.inspect import Progress, duration
from texpr.options import merge_sizes, natural, refuse_misspelt, size_names, target_of
from texpr.polyhedral.map.alternatives import LaunchAlternatives, Priced, with_choices
from texpr.polyhedral.target import Family
from texpr.ran import Ran
from texpr.stopwatch import HostWatch, Watch, gpu_watch
from texpr.trial import Trial, prepare_trial, run_trial

if TYPE_CHECKING:
    from texpr.kernels import Compiled, Kernel
    from texpr.polyhedral.mapped.candidate import Choices

COUNT, ROUNDS = 8, 9
FAR = {1: 2.0, 3: 1.3}  # after so many rounds, what takes so many times as long as the fastest is left out
MARGIN, SURE = 0.02, 0.75
STEPS = 3  # of the progress bar for a compilation; a round has one

Picked = tuple[LaunchAlternatives, Priced]
"""A launch and its choice in place of the compiler's own."""


@dataclass(frozen=True, slots=True, eq=False)
class Entrant:
    """What takes part in a race: the compiler's own mapping with what was `picked` in place of its choices."""

    picked: tuple[Picked, ...] = ()

    def __str__(self) -> str:
        return "; ".join(said(one.own.choice, other.choice) for one, other in self.picked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Choices and the seconds of their bursts: `ratio` is the median of how many times as long as the compiler's own
    they took in the same round, and `won` the share of rounds in which they took less. `predicted_s` is the time of the
    roofline, of the launches that differ."""

    launch: str
    choice: str
    choices: "Choices"
    predicted_s: float
    times_s: tuple[float, ...]
    ratio: float
    won: float

    @property
    def is_faster(self) -> bool:
        """Whether it is faster than the compiler's own, as far as noise lets one say."""
        return self.ratio < 1 - MARGIN and self.won >= SURE

    @property
    def time_s(self) -> float:
        return statistics.median(self.times_s)

    def to_json(self) -> dict[str, Any]:
        from texpr.polyhedral.mapped.candidate_json import choices_json

        figures = {"predicted_us": self.predicted_s * 1e6, "time_us": self.time_s * 1e6, "ratio": self.ratio}
        return {
            "launch": self.launch,
            "choice": self.choice,
            **figures,
            "bursts_us": [s * 1e6 for s in self.times_s],
            "candidate": choices_json(self.choices),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What was measured, the compiler's own first; `best` is the one that is taken. `refused` are choices that do not
    fit, with the reason. `kept`: the cache has it for `compile(tuned=True)`."""

    ran: Ran
    device: str
    measured: tuple[Measured, ...]
    best: Measured
    refused: tuple[tuple[str, str], ...]
    kept: bool

    @property
    def choices(self) -> "Choices":
        """The choices that were the fastest, for `compile(mapping=…)`."""
        return self.best.choices

    def __str__(self) -> str:
        rows = [("launch", "choice", "predicted", "measured", "of own", "")]
        rows += [
            (m.launch, m.choice, duration(m.predicted_s), duration(m.time_s), f"{m.ratio:.2f}", _taken(m is self.best))
            for m in self.measured
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [f"{self.ran}; {self.device}"]
        lines += ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [f"  does not fit: {what}: {why}" for what, why in self.refused]
        told = "kept: `--tuned` and compile(tuned=True) take it" if self.kept else "not kept: there is no cache"
        return "\n".join([*lines, f"  {told}"])

    def to_json(self) -> dict[str, Any]:
        """The object that `texpr tune --json` prints."""
        return {
            **self.ran.to_json(),
            "device": self.device,
            "measured": [m.to_json() for m in self.measured],
            "best": self.measured.index(self.best),
            "refused": [{"choice": what, "why": why} for what, why in self.refused],
            "kept": self.kept,
        }


def _taken(is_best: bool) -> str:
    return "taken" if is_best else ""


def tune(
    kernel: "Kernel",
    /,
    target: str = "cpu",
    *,
    types: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    dynamic: Sequence[str] = (),
    scalars: Mapping[str, int | float | bool] | None = None,
    inputs: Path | None = None,
    count: int = COUNT,
    rounds: int = ROUNDS,
    seed: int = 0,
    check: bool = True,
    bar: Progress | None = None,
    warned: Callable[[tuple[Diagnostic, ...]], None] | None = None,
    **size_values: int,
) -> Tuning:
    """Measure the best few mappings of a kernel on this machine, and keep the fastest for `compile(tuned=True)`.

    Args:
        target: `cpu`, or a GPU of this machine.
        sizes, size_values: all sizes, but for those that the arrays of `inputs` give.
        dynamic: sizes that stay dynamic: the mapping is measured at their values, and kept for all.
        scalars, inputs, seed: the arguments of the calls, as `texpr run` takes them; what is not given is random.
        count: how many choices are measured beside the compiler's own.
        check: compare what is taken with the interpreter, if it is not the compiler's own.

    Raises:
        TExprError: the kernel does not compile or run here; E0604 where the interpreter finds something else.
    """
    options = ("target", "types", "sizes", "dynamic", "scalars", "inputs", "count", "rounds", "seed", "check")
    refuse_misspelt(size_values, options, lambda: {size.name for size in kernel.core().sizes})
    machine, count, rounds = target_of(target), natural("count", count), max(1, natural("rounds", rounds))
    if machine.name.startswith("cuda-host"):
        raise fail("E0502", "a cuda-host kernel runs with checks, one thread at a time: its time says nothing")
    bound, free = merge_sizes("sizes", sizes, size_values), size_names(dynamic)
    given: dict[str, Any] = {"sizes": bound, "types": types, "scalars": scalars, "inputs": inputs, "seed": seed}
    given["dynamic"] = free
    device = tuned.device_of(machine)
    trial = prepare_trial(kernel, machine.name, **given, warned=warned)
    course = _Course(kernel, trial, types, count, rounds, random.Random(seed), bar or Progress())
    with _started(trial) as (watch, arrays, stream):
        measured = course.run(watch, arrays, stream)
    best = min((m for m in measured[1:] if m.is_faster), key=lambda m: m.ratio, default=measured[0])
    if check and best is not measured[0]:
        _compare(kernel, machine.name, best, given)
    figures = {"at": dict(trial.solved), "own_us": measured[0].time_s * 1e6, "time_us": best.time_s * 1e6}
    static = dict(trial.compiled.build.sizes)
    is_kept = tuned.keep(trial.compiled.build.kernel, machine, static, best.choices, figures)
    return Tuning(
        ran=trial.ran,
        device=device,
        measured=tuple(measured),
        best=best,
        refused=tuple(course.refused),
        kept=is_kept,
    )


@contextmanager
def _started(trial: Trial) -> Iterator[tuple[Watch, Mapping[str, Any], dict[str, Any]]]:
    """A watch, the arguments where the target has them, and the stream that calls run on."""
    if trial.on_host:
        yield HostWatch(), trial.values, {}
        return
    from texpr.runtime.gpu_arrays import on_gpu

    with on_gpu(trial.values) as (arrays, stream):
        yield gpu_watch(stream), arrays, {"stream": stream}


def _compare(kernel: "Kernel", target: str, best: Measured, given: Mapping[str, Any]) -> None:
    report = run_trial(kernel, target, mapping=best.choices, check=True, **given)
    if not report.passed:
        why = f"{best.launch}, {best.choice}: {'; '.join(report.objections)}"
        raise fail("E0604", f"the fastest choice is not right: {why}", help="this is a defect of TExpr; please report")


@dataclass(slots=True)
class _Course:
    """The compilations and rounds of one tuning."""

    kernel: "Kernel"
    trial: Trial
    types: Mapping[str, str] | None
    count: int
    rounds: int
    chance: random.Random
    bar: Progress
    refused: list[tuple[str, str]] = field(default_factory=list)

    def run(self, watch: Watch, arrays: Mapping[str, Any], stream: dict[str, Any]) -> list[Measured]:
        mapping = self.trial.compiled.mapping
        case = case_of(mapping.candidate, self.trial, arrays)
        launches = [one for one in mapping.alternatives() if one.case == case]
        entrants = [Entrant(), *(Entrant((pair,)) for pair in contenders(launches, self.count))]
        own = entrants[0]
        self.bar.expect(len(entrants) * (STEPS + self.rounds))
        runs = self._compiled(entrants)
        times = self._raced(runs, watch, arrays, stream)
        measured = [self._measured(one, times[one], times[own], launches) for one in runs]
        names = [one.launch for one in launches]
        faster = Entrant(tuple(sorted(_fastest(times, own), key=lambda pair: names.index(pair[0].launch))))
        if len(faster.picked) > 1:  # several launches have a faster choice
            runs = self._compiled([own, faster])
            again = self._raced(runs, watch, arrays, stream)
            measured += [self._measured(one, again[one], again[own], launches) for one in runs if one is faster]
        return measured

    def _compiled(self, entrants: Sequence[Entrant]) -> "dict[Entrant, Compiled]":
        """Those that fit, ready to run, without those that come to the same text."""
        made: dict[str, tuple[Entrant, Compiled]] = {}
        for one in entrants:
            with self._fits(one):
                compiled = self._made(one)
                made.setdefault(compiled.source, (one, compiled))
        found: dict[Entrant, Compiled] = {}
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            built = [pool.submit(_built, compiled) for _, compiled in made.values()]
            for (one, compiled), is_built in zip(made.values(), built, strict=True):
                with self._fits(one):
                    is_built.result()
                    compiled.make_ready()
                    found[one] = compiled
                self.bar.advance(STEPS)
        return found

    @contextmanager
    def _fits(self, one: Entrant) -> Iterator[None]:
        """Notes why other choices than the compiler's own do not fit."""
        try:
            yield
        except TExprError as wrong:
            if not one.picked:
                raise
            self.refused.append((str(one), wrong.diagnostics[0].message))

    def _made(self, one: Entrant) -> "Compiled":
        own = self.trial.compiled
        if not one.picked:
            return own
        choices = with_choices(own.mapping.candidate, one.picked)
        return self.kernel.compile(own.target, types=self.types, sizes=own.build.sizes, mapping=choices)

    def _raced(
        self, runs: "Mapping[Entrant, Compiled]", watch: Watch, arrays: Mapping[str, Any], stream: dict[str, Any]
    ) -> dict[Entrant, list[float]]:
        """The seconds of each in every round, in which they take turns; without what is soon seen to be slow."""
        calls = {one: partial(replace(self.trial, compiled=made).call, arrays, **stream) for one, made in runs.items()}
        times: dict[Entrant, list[float]] = {one: [] for one in calls}
        racing = list(calls)
        for number in range(self.rounds):
            self.chance.shuffle(racing)
            for one in racing:
                times[one].append(watch.warm(calls[one]))
                self.bar.advance(1)
            if number + 1 in FAR:
                most = FAR[number + 1] * min(statistics.median(times[one]) for one in racing)
                racing = [one for one in racing if not one.picked or statistics.median(times[one]) <= most]
        return times

    def _measured(
        self, entrant: Entrant, times: Sequence[float], own: Sequence[float], launches: Sequence[LaunchAlternatives]
    ) -> Measured:
        picked = entrant.picked or tuple((one, one.own) for one in launches)
        ratios = [mine / other for mine, other in zip(times, own, strict=False)]
        as_it_is = f"as it is: {', '.join(form(one.own.choice) for one in launches)}"
        return Measured(
            launch=", ".join(one.launch for one, _ in picked),
            choice=str(entrant) or as_it_is,
            choices=with_choices(self.trial.compiled.mapping.candidate, entrant.picked),
            predicted_s=sum(other.terms.total for _, other in picked) / 1e12,
            times_s=tuple(times),
            ratio=statistics.median(ratios),
            won=sum(ratio < 1 for ratio in ratios) / len(ratios),
        )


def _built(compiled: "Compiled") -> None:
    """Have a compiler make what the launcher then finds in the cache; other targets build when they are made ready."""
    from texpr.execute import cubin_of

    if compiled.build.target.family is Family.CUDA:
        cubin_of(compiled.build)


def _fastest(times: Mapping[Entrant, Sequence[float]], own: Entrant) -> tuple[Picked, ...]:
    """The fastest choice of each launch that has one which is faster than its own."""
    base = (1 - MARGIN) * statistics.median(times[own])
    best: dict[str, tuple[float, Picked]] = {}
    for entrant, seconds in times.items():
        for pair in entrant.picked:
            launch, time = pair[0].launch, statistics.median(seconds)
            if time < min(base, best.get(launch, (base, pair))[0]):
                best[launch] = (time, pair)
    return tuple(pair for _, pair in best.values())


def contenders(launches: Sequence[LaunchAlternatives], count: int) -> list[Picked]:
    """So many choices to be measured: more of launches that take longer, of each those of the least price, and of what
    differs in the same fields one after the others."""
    queues = {one.launch: _by_kind(one) for one in launches}
    taken = dict.fromkeys(queues, 0)
    found: list[Picked] = []
    while len(found) < count:
        left = [one for one in launches if taken[one.launch] < len(queues[one.launch])]
        if not left:
            break
        one = max(left, key=lambda each: each.own.terms.total / (taken[each.launch] + 1))
        found.append((one, queues[one.launch][taken[one.launch]]))
        taken[one.launch] += 1
    return found


def _by_kind(one: LaunchAlternatives) -> list[Priced]:
    """The others by turns: the best of each kind of difference, then the second best."""
    kinds: dict[tuple[type, tuple[str, ...]], list[Priced]] = {}
    for other in one.others:
        kinds.setdefault((type(other.choice), changed(one.own.choice, other.choice)), []).append(other)
    rank = {id(other): place for own in kinds.values() for place, other in enumerate(own)}
    return sorted(one.others, key=lambda other: rank[id(other)])


def case_of(choices: "Choices", trial: Trial, arrays: Mapping[str, Any]) -> int | None:
    """The number of the case of a mapping that a call with these arrays runs, None where it has no cases."""
    from texpr.grammar.index.value import condition_value
    from texpr.polyhedral.mapped.candidate import Candidate
    from texpr.runtime.arrays import view_of

    if isinstance(choices, Candidate):
        return None
    values: dict[str, int] = dict(trial.solved)
    for parameter in trial.compiled.manifest.parameters:
        if not parameter.scalar:
            values[address_name(parameter.name)] = view_of(parameter.name, arrays[parameter.name]).pointer
    for number, case in enumerate(choices.cases):
        if condition_value(case.when, values):
            return number
    return len(choices.cases)
