"""Compilations look for cycles rarely, and leave the collector as they found it."""

import gc
from collections.abc import Iterator
from threading import Barrier, Thread

import pytest

import texpr
from texpr.grammar.collector import YOUNG, rare_collections
from texpr.grammar.diagnostics import TExprError

USUAL = (700, 10, 10)


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


def test_what_held_before_holds_again() -> None:
    with rare_collections():
        assert gc.get_threshold() == (YOUNG, *USUAL[1:])
        with rare_collections():
            assert gc.get_threshold()[0] == YOUNG
        assert gc.get_threshold()[0] == YOUNG
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("own", [(0, 10, 10), (YOUNG + 1, 5, 5)], ids=["off", "rarer"])
def test_who_collects_never_or_more_rarely_keeps_it_so(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with rare_collections():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_what_somebody_else_sets_meanwhile_stays() -> None:
    with rare_collections():
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)


def test_threads_that_overlap_leave_what_the_first_one_found() -> None:
    inside, first_is_out = Barrier(2), Barrier(2)

    def second() -> None:
        with rare_collections():
            inside.wait()
            first_is_out.wait()

    thread = Thread(target=second)
    with rare_collections():
        thread.start()
        inside.wait()
    assert gc.get_threshold()[0] == YOUNG
    first_is_out.wait()
    thread.join()
    assert gc.get_threshold() == USUAL


def test_a_compilation_leaves_the_collector_as_it_was_also_where_it_fails() -> None:
    texpr.parse("kernel f(A: f32[N]) { par N i { A[i] = 1.0 } }").only.compile("cuda:sm_90a")
    assert gc.get_threshold() == USUAL
    wrong = texpr.parse("kernel f(A: f32[N]) { par N i { A[i + 1] = 1.0 } }").only
    with pytest.raises(TExprError):
        wrong.compile("cuda:sm_90a")
    assert gc.get_threshold() == USUAL


def test_what_is_frozen_stays_frozen() -> None:
    import sys
    from types import ModuleType

    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with rare_collections():
            sys.modules["texpr_test_of_the_collector"] = ModuleType("loaded")
        assert gc.get_freeze_count() == frozen
    finally:
        sys.modules.pop("texpr_test_of_the_collector", None)
        gc.unfreeze()
