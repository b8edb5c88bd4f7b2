"""Any number of errors, anywhere: the first are told, the last of them says that there are more."""

import pytest
from checked import core, refused
from front_end import from_text, refusal

from texpr.grammar.check.context import MAX_NODES
from texpr.grammar.check.stage import check
from texpr.grammar.diagnostics import MAX_TOLD, Severity, TExprError, error, first
from texpr.grammar.text.limits import MAX_DIAGNOSTICS
from texpr.grammar.text.parser import parse_text

MANY = range(MAX_TOLD + 1)
LOOP = "{ par N i { A[i] = 1.0 } }"
PLACES = {
    "where": f"kernel k(A: f32[N]) where {', '.join(f'x{n} > 0' for n in MANY)} {LOOP}",
    "parameters": f"kernel k(A: f32[N], {', '.join(f'B{n}: t{n}[N]' for n in MANY)}) {LOOP}",
    "sizes of a kernel": f"kernel k(A: f32[N]) {{ {'; '.join(f'size S{n} = x{n}' for n in MANY)}; A[0] = 1.0 }}",
    "sizes of the file": f"{'; '.join(f'size S{n} = x{n}' for n in MANY)}; kernel k(A: f32[N]) {LOOP}",
    "imports": f"{'; '.join(f'import m{n}' for n in MANY)}; kernel k(A: f32[N]) {LOOP}",
    "statements": f"kernel k(A: f32[N]) {{ {'; '.join(f'A[0] = x{n}' for n in MANY)} }}",
    "attributes": f"kernel k(A: f32[N]) {{ {'; '.join('A[0] = 1.0 #q' for n in MANY)} }}",
    "names defined twice": f"kernel k({', '.join('A: f32[N]' for n in range(MAX_TOLD + 2))}) {LOOP}",
    "kernels": "; ".join(f"kernel k{n}(A: f32[N]) {{ A[0] = x{n} }}" for n in MANY),
    "kernels of one name": "; ".join(f"kernel k(A: f32[N]) {LOOP}" for n in range(MAX_TOLD + 2)),
    "a function": f"fn f() {{ {'; '.join(f'let a{n} = x{n}' for n in MANY)} }}; kernel k(A: f32[N]) {{ f() }}",
    "a function that is not called": f"fn f() {{ {'; '.join(f'let a{n} = x{n}' for n in MANY)} }}; {'A[0] = 1.0'}",
    "bare statements": "; ".join(f"A[0] = x{n}" for n in MANY),
    "bare buffers that are sizes": "; ".join(f"par N{n} i {{ A[i] = N{n}[i] }}" for n in MANY),
}  # fmt: skip


def is_told(found: TExprError, count: int) -> bool:
    """Whether there are `count` errors, and the last one alone says that there are more."""
    says = [f"more was found than these {count}: mend them first" in d.notes for d in found.diagnostics]
    return len(says) == count and says.index(True) == count - 1


@pytest.mark.parametrize("place", PLACES)
def test_more_errors_than_are_told_are_bounded_and_said(place: str) -> None:
    with pytest.raises(TExprError) as found:
        core(PLACES[place])
    assert is_told(found.value, MAX_TOLD)


@pytest.mark.parametrize(
    "text", ["x = = 1; ", "\x01", "{ ", "for (int i = 0; i < n; i++) { }; ", "x = 1abc; ", "x = é; "]
)
def test_more_syntax_errors_than_are_told_are_bounded_and_said(text: str) -> None:
    with pytest.raises(TExprError) as found:
        parse_text(text * (MAX_DIAGNOSTICS + 1))
    assert is_told(found.value, MAX_DIAGNOSTICS)


def test_more_errors_of_a_python_function_than_are_told_are_bounded_and_said() -> None:
    body = "".join("    A[0] = lambda: 0\n" for _ in range(MAX_DIAGNOSTICS + 1))
    assert is_told(refusal(from_text(f"def f(A: f32['N']):\n{body}", "many.py")), MAX_DIAGNOSTICS)


def test_as_many_errors_as_are_told_are_all_of_them() -> None:
    facts = ", ".join(f"x{n} > 0" for n in range(MAX_TOLD))
    with pytest.raises(TExprError) as found:
        core(f"kernel k(A: f32[N]) where {facts} {LOOP}")
    assert len(found.value.diagnostics) == MAX_TOLD
    assert not any(d.notes for d in found.value.diagnostics)


def test_a_kernel_that_is_given_up_hides_no_error_of_another_one() -> None:
    doubling = "".join(f"fn g{n}(x: f32): f32 {{ return g{n + 1}(x) + g{n + 1}(x) }}\n" for n in range(20))
    functions = f"{doubling}fn g20(x: f32): f32 {{ return x }}\n"
    assert refused(f"{functions}kernel a(A: f32[N]) {{ A[0] = g0(A[0]) }}\nkernel b(A: f32[N]) {{ A[0] = x }}") == [
        ("E0103", f"the kernel has more than {MAX_NODES} nodes after inlining"),
        ("E0201", "`x` is not known here"),
    ]


def test_warnings_refuse_nothing_and_are_bounded() -> None:
    loops = "; ".join("par 100 / 16 i { A[i] = 1.0 }" for _ in range(MAX_TOLD + 50))
    warnings: list = []
    (kernel,) = check(parse_text(f"kernel k(A: f32[100]) {{ {loops} }}"), warnings=warnings)
    assert len(kernel.body) == MAX_TOLD + 50  # the rest of the kernel is not dropped with them
    assert [w.severity for w in warnings] == [Severity.WARNING] * MAX_TOLD
    assert "mend them first" in warnings[-1].notes[0]


def test_errors_are_told_before_warnings() -> None:
    loops = "; ".join("par 100 / 16 i { A[i] = 1.0 }" for _ in range(MAX_TOLD + 50))
    with pytest.raises(TExprError) as found:
        core(f"kernel k(A: f32[100]) {{ {loops}; A[0] = x }}")
    assert [d.message for d in found.value.diagnostics] == ["`x` is not known here"]
    warning = found.value.diagnostics[0].__class__(code="W0302", message="w", severity=Severity.WARNING)
    assert [d.code for d in first([warning, warning, error("E0201", "e")], 2)] == ["E0201", "W0302"]
