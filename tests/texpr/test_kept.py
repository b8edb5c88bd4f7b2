"""Kept builds: another process has what was emitted without running the stages, and never that of anything else."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import texpr
from texpr import cache, kept
from texpr.settings import settings

ROOT = Path(__file__).resolve().parents[2]
ADD = "kernel add(A: f32[N], B: f32[N], C: f32[N]) {\n  par N i { C[i] = A[i] + B[i] }\n}\n"
ORDERED = "kernel total(A: f32[N], s: f32[1]) {\n  s[0] = 0.0\n  seq N i #ordered { s[0] += A[i] }\n}\n"
STAGES = ["check", "model", "prove", "schedule", "map", "plan", "emit"]
IN_A_PROCESS = """
import hashlib, json, sys
import texpr
made = texpr.parse(sys.argv[1], "add").only.compile(sys.argv[2], N=4096)
texts = {name: hashlib.sha256(text).hexdigest() for name, text in made.build.result("emit").files.items()}
heavy = [name for name in ("islpy", "z3", "numpy", "rich", "texpr.polyhedral.map.stage") if name in sys.modules]
print(json.dumps({"texts": texts, "heavy": heavy, "stages": list(made.build.times_ms)}))
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, in which builds are kept."""
    monkeypatch.setenv("TEXPR_CACHE_DIR", str(tmp_path / "cache"))
    settings.cache_clear()
    monkeypatch.setattr(kept, "cache_folder", cache.cache_folder)


def entries() -> list[str]:
    return [name for name, _, _ in cache.entries() if name.startswith("build/")]


def made(text: str = ADD, target: str = "cuda:sm_90a", **options: Any) -> texpr.Compiled:
    return texpr.parse(text, "add").only.compile(target, **{"N": 4096, **options})


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cpu"])
def test_another_process_has_the_texts_without_the_stages(target: str) -> None:
    def told() -> dict[str, Any]:
        command = [sys.executable, "-c", IN_A_PROCESS, ADD, target]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    first, second = told(), told()
    assert first["texts"] == second["texts"]
    assert first["stages"] == STAGES and "islpy" in first["heavy"]
    assert second["stages"] == [] == second["heavy"]


def test_a_kept_build_is_what_was_made() -> None:
    first, second = made(), made()
    assert first.build.times_ms and not second.build.times_ms
    assert (second.source, second.manifest) == (first.source, first.manifest)
    assert dict(second.build.result("emit").files) == dict(first.build.result("emit").files)


def test_a_stage_that_a_kept_build_has_not_is_run_when_it_is_asked_for() -> None:
    first, second = made(), pickle.loads(pickle.dumps(made()))
    assert str(second.mapping) == str(first.mapping) and str(second.graph) == str(first.graph)
    assert list(second.build.times_ms) == STAGES
    assert second.source == first.source


OTHERS: Mapping[str, Callable[[], texpr.Compiled]] = {
    "another size": lambda: made(N=4097),
    "a free size": lambda: texpr.parse(ADD, "add").only.compile("cuda:sm_90a"),
    "another hint": lambda: texpr.parse(ADD, "add").only.compile("cuda:sm_90a", hints={"N": 3}),
    "another target": lambda: made(target="cuda:sm_80"),
    "a target of the host": lambda: made(target="cuda-host:sm_90a"),
    "another objective": lambda: made(objective="distance"),
    "checks": lambda: made(checks=True),
    "another type": lambda: made(ADD.replace("f32", "f16")),
    "other lines": lambda: made("\n\n" + ADD),
    "another comment": lambda: made(ADD.replace("par", "-- the sum\n  par")),
    "another operator": lambda: made(ADD.replace("+", "-")),
    "another file": lambda: texpr.parse(ADD, "sums").only.compile("cuda:sm_90a", N=4096),
}


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_else_takes_a_kept_build(name: str) -> None:
    made()
    assert len(entries()) == 1
    assert OTHERS[name]().build.times_ms
    assert len(entries()) == 2


def test_another_compiler_takes_no_kept_build(monkeypatch: pytest.MonkeyPatch) -> None:
    made()
    monkeypatch.setattr(kept, "compiler", lambda: "another")
    assert made().build.times_ms


DAMAGE: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "another schema": lambda entry: entry.update(schema=0),
    "no manifest": lambda entry: entry.pop("manifest"),
    "a manifest that is none": lambda entry: entry.update(manifest="{}"),
    "a header that is not there": lambda entry: entry["headers"].append("texpr/none.cuh"),
    "files that are no texts": lambda entry: entry.update(files={"add.cu": 3}),
    "another compiler": lambda entry: entry.update(best_by="clang"),
    "a list of files": lambda entry: entry.update(files=[]),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_an_entry_that_is_none_of_ours_is_made_again(name: str) -> None:
    first = made()
    key, real = [], kept.found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "found", lambda kind, parts: key.append(parts) or real(kind, parts))
        made()
    entry = json.loads(real(kept.KIND, key[0]) or b"")
    DAMAGE[name](entry)
    assert cache.change(kept.KIND, key[0], lambda before: json.dumps(entry).encode())
    again = made()
    assert again.build.times_ms and again.source == first.source
    assert not made().build.times_ms


def test_what_a_stage_warns_of_is_said_each_time() -> None:
    for _ in range(2):
        with pytest.warns(texpr.TExprWarning, match="W0303"):
            made(ORDERED, N=100000)
    assert entries() == []


def test_builds_with_choices_from_outside_or_that_stop_are_not_kept() -> None:
    first = made()
    count = len(entries())
    made(mapping=first.mapping.candidate)
    made(stop_after="plan")
    assert len(entries()) == count == 1


def test_nothing_is_kept_where_the_cache_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXPR_CACHE_DIR", "off")
    settings.cache_clear()
    assert made().build.times_ms and made().build.times_ms
