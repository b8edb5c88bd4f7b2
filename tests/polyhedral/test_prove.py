"""What the proofs accept, what they infer, and the dependences of what they accepted."""

import tomllib
from pathlib import Path
from typing import Any

import islpy as isl
import pytest
from stages import proved

from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.check.stage import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.source import SourceText
from texpr.grammar.text.parser import parse
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.prove import races
from texpr.polyhedral.prove.dependence import find_dependences
from texpr.polyhedral.prove.ordering import uses_by_buffer
from texpr.polyhedral.prove.stage import prove

KERNELS = Path(__file__).parent.parent / "kernels"
CASES = tomllib.loads((KERNELS / "cases.toml").read_text(encoding="utf-8"))
FACTORS = {"strided_convolution": ("stride", "dilation")}  # sizes that multiply indices are never free
# At some sizes these write every element of an array that others leave partly unwritten: `out`, and else `inout`.
WRITTEN_AT_SOME_SIZES = {"range_bounds", "triangle_copy", "workspace_of_a_triangle"}
REFUSED = tomllib.loads((KERNELS / "refused" / "cases.toml").read_text(encoding="utf-8"))


def codes(text: str, **sizes: int) -> list[str]:
    try:
        proved(text, **sizes)
    except TExprError as refused:
        return [diagnostic.code for diagnostic in refused.diagnostics]
    return []


def is_map(relation: isl.Map, text: str) -> bool:
    return bool(relation.is_equal(isl.Map(text, context=relation.get_ctx())))


def flows(found: ProvedProgram) -> list[tuple[str, str, str, str]]:
    dependences = find_dependences(found.program)
    return [(d.hazard.value, d.source.statement, d.sink.statement, d.source.buffer) for d in dependences]


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_kernel_is_proved_at_its_sizes_and_with_free_sizes(name: str) -> None:
    path = KERNELS / f"{name}.tex"
    (kernel,) = check(parse(SourceText(path.name, path.read_text(encoding="utf-8"))), folder=KERNELS)
    factors = {size: CASES[name]["sizes"][0][size] for size in FACTORS.get(name, ())}
    free = prove(build_program(bind_sizes(kernel, factors))).directions
    for sizes in CASES[name]["sizes"]:
        bound = prove(build_program(bind_sizes(kernel, sizes)))
        assert set(bound.directions) == {b.name for b in kernel.params if b.role == "param"} == set(free)
        assert bound.directions == free or 0 in sizes.values() or name in WRITTEN_AT_SOME_SIZES


def test_a_data_condition_covers_what_it_guards_in_its_own_iteration_only() -> None:
    head = "kernel f(A: f32[N, K], B: f32[N]) { par N i { new s: f32\n B[i] = 0.0\n"
    inner = "if k == 0 { s = 1.0 } else { B[i] = s }"
    assert codes(f"{head} if A[i, 0] > 0.0 {{ seq K k {{ {inner} }} }} }} }}", N=3, K=4) == []
    assert codes(f"{head} seq K k {{ if A[i, k] > 0.0 {{ {inner} }} }} }} }}", N=3, K=4) == ["E0303"]


def test_unique_is_a_promise_of_one_statement_and_not_of_two() -> None:
    once, again = "H[X[i]] += 1 #unique", "H[Y[i]] += 1 #unique"
    head = "kernel f(X: i32[N], Y: i32[N], H: i32[M]) { par N i { "
    assert codes(f"{head}{once} }} }}") == []
    assert codes(f"{head}{once}; {again} }} }}") == ["E0301"]


@pytest.mark.parametrize("name", sorted(n for n, c in REFUSED.items() if c["codes"][0].startswith("E03")))
def test_every_refused_kernel_is_refused_with_its_codes_and_witness(name: str) -> None:
    path, case = KERNELS / "refused" / f"{name}.tex", REFUSED[name]
    (kernel,) = check(parse(SourceText(path.name, path.read_text(encoding="utf-8"))), folder=KERNELS)
    with pytest.raises(TExprError) as refused:
        prove(build_program(bind_sizes(kernel, case["sizes"])))
    assert sorted({d.code for d in refused.value.diagnostics}) == case["codes"]
    if "witness" in case:
        witness = refused.value.diagnostics[0].witness
        assert {key: witness[key] for key in case["witness"]} == case["witness"]


@pytest.mark.parametrize(
    ("body", "directions"),
    [
        ("par N i { B[i] = A[i] }", {"A": "in", "B": "out"}),
        ("par N i { B[i] += A[i] }", {"A": "in", "B": "inout"}),
        ("par 1..N i { B[i] = A[i] }", {"A": "in", "B": "inout"}),
        ("par N i { if A[i] > 0.0 { B[i] = A[i] } }", {"A": "in", "B": "inout"}),
        ("par N i { B[i] = 0.0\n B[i] += A[i] }", {"A": "in", "B": "out"}),
        ("par N i { B[i] = A[i] }\n par N j { A[j] = B[j] }", {"A": "inout", "B": "out"}),
        ("par N i { if i % 2 == 0 { B[i] = A[i] } else { B[i] = 0.0 } }", {"A": "in", "B": "out"}),
        ("par N i { B[N - 1 - i] = A[i] }", {"A": "in", "B": "out"}),
    ],
)
def test_directions_are_inferred(body: str, directions: dict[str, str]) -> None:
    assert proved(f"kernel f(A: f32[N], B: f32[N]) {{ {body} }}").directions == directions


def test_an_inout_used_one_way_is_a_warning() -> None:
    found = proved(
        "kernel f(inout A: f32[N], inout B: f32[N], inout C: f32[N]) { par N i { B[i] = A[i]\n C[i] += 1.0 } }"
    )
    assert [(w.code, w.message) for w in found.warnings] == [
        ("W0301", "A is declared `inout` and only read"),
        ("W0301", "B is declared `inout` and wholly written before it is read"),
    ]


def test_parameters_that_are_only_accumulated_into_have_their_operator() -> None:
    found = proved("kernel f(A: f32[N], S: f32[1], T: f32[1]) { par N i { S[0] max= A[i]\n atomic T[0] += A[i] } }")
    assert found.accumulated == {"S": "max", "T": "add"}


@pytest.mark.parametrize(
    "body",
    [
        "par N i { S[0] += A[i] }",
        "par N i, N j { S[i] += A[j] }",
        "par N i { atomic S[i / 2] += A[i] }",
        "par N i { S[i] = A[i]\n seq 3 k { S[i] = S[i] + 1.0 } }",
        "seq N t { par N i { S[i] = S[i] + A[i] } }",
        "par N i { if i == 0 { S[0] = A[0] } }",
        "par N i { if A[i] > 0.0 { S[i] = 1.0 } else { S[i] = 2.0 } }",
        "par N i { new t: f32\n if A[i] > 0.0 { t = 1.0 } else { t = 2.0 }\n S[i] = t }",
        "par N i { new t: f32[2]\n par 2 j { t[j] = A[i] }\n S[i] = t[0] + t[1] }",
        "par N i { new s: f32\n s = 0.0\n par N j { s += A[j] }\n S[i] = s }",
        "par N i { if A[i] > 0.0 { new t: f32\n t = A[i]\n S[i] = t } }",
        "par N - 8 i { S[i + 8] = A[i] }",
        "par N i { par i j { if i < N { S[i] += A[j] } } }",
    ],
)
def test_legal_programs_are_accepted(body: str) -> None:
    assert codes(f"kernel f(A: f32[N], S: f32[N]) where N >= 1 {{ {body} }}") == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("par N i { S[0] = A[i] }", "E0301"),
        ("par N i { S[0] += A[i]\n S[0] max= A[i] }", "E0301"),
        ("par N i { par N j { S[j] = A[i] } }", "E0301"),
        ("par N i { atomic S[0] += A[i]\n S[0] += 1.0 }", "E0301"),
        ("par N i { new t: f32\n if A[i] > 0.0 { t = 1.0 } else { if A[i] < -1.0 { t = 2.0 } }\n S[i] = t }", "E0303"),
        ("par N i { new t: f32\n if A[i] > 0.0 { t = 1.0 }\n if A[i] > 0.0 { S[i] = t } }", "E0303"),
        ("new t: f32\n seq N i { if i > 1 { S[i] = t }\n if i > 1 { t = A[i] } }", "E0303"),
        ("par N + 1 i { S[i] = 1.0 }", "E0302"),
        ("par N i { S[2 * i] = 1.0 }", "E0302"),
    ],
)
def test_wrong_programs_are_refused(body: str, code: str) -> None:
    assert codes(f"kernel f(A: f32[N], S: f32[N]) where N >= 3 {{ {body} }}") == [code]


def test_a_subscript_beside_a_gathered_one_is_checked_where_its_dimension_is_empty() -> None:
    text = "kernel f(idx: i32[4], E: f32[M, 4, N], B: f32[4]) { par 4 i { B[i] = E[0, idx[i], 0] } }"
    assert codes(text, M=0, N=3) == codes(text, M=2, N=0) == codes(text) == ["E0302"]
    assert codes(text, M=1, N=1) == []


def test_a_promise_of_distinct_elements_holds_for_one_statement() -> None:
    head = "kernel f(idx: i32[N], A: f32[N], B: f32[N])"
    assert codes(head + " { par N i { A[idx[i]] = A[idx[i]] + B[i] #unique } }") == []
    assert codes(head + " { par N i { A[idx[i]] = B[i] #unique\n B[i] = A[0] } }") == ["E0301"]


def test_strides_that_are_a_chain_are_injective_with_free_sizes() -> None:
    assert codes("kernel f(C: f32[M, N] #strides(1, M)) { par M i, N j { C[i, j] = 1.0 } }") == []
    assert codes("kernel f(C: f32[M, N] #strides(N + 8, 1)) { par M i, N j { C[i, j] = 1.0 } }") == []
    assert codes("kernel f(C: f32[M, N] #strides(2 * N - 1, 2)) { par M i, N j { C[i, j] = 1.0 } }") == []
    assert codes("kernel f(C: f32[M, N] #strides(2 * N - 2, 2)) { par M i, N j { C[i, j] = 1.0 } }") == ["E0301"]
    assert codes("kernel f(C: f32[4, 3] #strides(2, 3)) { par 4 i, 3 j { C[i, j] = 1.0 } }") == ["E0301"]
    assert codes("kernel f(C: f32[2, 3] #strides(3, 2)) { par 2 i, 3 j { C[i, j] = 1.0 } }") == []
    assert codes("kernel f(in C: f32[4, 4] #strides(0, 1), S: f32[1]) { par 4 i, 4 j { S[0] += C[i, j] } }") == []


def test_dependences_are_exact_and_carried_by_seq_loops() -> None:
    found = proved(
        "kernel f(A: f32[9], B: f32[9]) { seq 3 t { par 8 i { B[i] = A[i + 1] }\n par 8 j { A[j] = B[j] } } }"
    )
    assert flows(found) == [
        ("anti", "S0", "S1", "A"),
        ("flow", "S1", "S0", "A"),
        ("output", "S1", "S1", "A"),
        ("output", "S0", "S0", "B"),
        ("flow", "S0", "S1", "B"),
        ("anti", "S1", "S0", "B"),
    ]
    anti, flow = find_dependences(found.program)[:2]
    box = "0 <= t <= u < 3 and 0 <= i < 8"
    assert is_map(anti.relation, f"{{ S0[t, i] -> S1[u, i + 1] : {box} and i < 7 }}")
    assert is_map(flow.relation, f"{{ S1[t, i] -> S0[u, i - 1] : {box} and t < u and i > 0 }}")


def test_accumulations_by_one_operator_have_no_dependence() -> None:
    found = proved(
        "kernel f(A: f32[N], S: f32[1]) { S[0] = 0.0\n par N i { S[0] += A[i] }\n par N j { S[0] += A[j] } }"
    )
    assert flows(found) == [("flow", "S0", "S1", "S"), ("flow", "S0", "S2", "S")]


def test_the_branches_of_a_data_condition_do_not_depend_on_each_other() -> None:
    found = proved("kernel f(A: f32[N], S: f32[N]) { par N i { if A[i] > 0.0 { S[i] = 1.0 } else { S[i] = 2.0 } } }")
    dependences = find_dependences(found.program)
    assert [d for d in dependences if d.source.buffer == "S"] == []
    assert all(not d.must for d in dependences if d.sink.statement != "S0")


def test_iterations_that_a_subscript_tells_apart_are_not_asked_of_isl(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    conflict = races._conflict

    def counted(program: Any, first: Any, second: Any, levels: Any) -> Any:
        asked.append((first.statement.id, second.statement.id))
        return conflict(program, first, second, levels)

    monkeypatch.setattr(races, "_conflict", counted)

    def found(text: str) -> list[str]:
        program = build_program(check(parse(SourceText(name="t.tex", text=text)))[0])
        return [d.code for d in races.check_races(program, uses_by_buffer(program))]

    own = "kernel f(A: f32[M, N, 2]) { par M i, N j { A[i, j, 0] = 1.0; A[i, j, 1] = A[i, j, 0] } }"
    assert found(own) == [] and asked == []
    ends = "kernel f(A: f32[M, 2]) { par M i { A[i, 0] = 1.0 }; par M k { seq 9 q { A[k, 1] = 2.0 } } }"
    assert found(ends) == [] and asked == []
    mixed = "kernel f(A: f32[M, M]) { par M i, M j { A[i, j] = 1.0; A[j, i] = 2.0 } }"
    assert found(mixed) == ["E0301"] and asked
