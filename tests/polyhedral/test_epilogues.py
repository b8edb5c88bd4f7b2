"""What programs say around products of matrices on tensor cores: told exactly, with every rounding that they write, at
edges that no tile divides, and left to other forms where iterations meet."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.simulate.stage import simulate

TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64, "i32": np.int32, "i8": np.int8,
}  # fmt: skip
LARGE = {"M": 512, "N": 512, "K": 512}
EDGE, SMALL = {"M": 40, "N": 40, "K": 24}, {"M": 72, "N": 136, "K": 40}
SUM = "sum K k { A[i, k] * B[k, j] }"
ROWS = "A: bf16[M, K], B: bf16[K, N]"


def kernel(head: str, body: str, band: str = "par M i, N j") -> str:
    return f"kernel g({ROWS}, {head}) {{ {band} {{ {body} }} }}"


FORMS = {
    "added to": kernel("C: bf16[M, N]", f"C[i, j] += {SUM}"),
    "added to, term by term": kernel("inout C: f32[M, N]", "seq K k { C[i, j] += A[i, k] * B[k, j] }"),
    "begun with a bias": kernel("b: f32[N], C: f32[M, N]", "C[i, j] = b[j]; seq K k { C[i, j] += A[i, k] * B[k, j] }"),
    "scaled": kernel("alpha: f32, beta: f32, C: bf16[M, N]", f"C[i, j] = alpha * ({SUM}) + beta * C[i, j]"),
    "bias by column": kernel("b: bf16[N], C: bf16[M, N]", f"C[i, j] = max(b[j] + {SUM}, 0.0)"),
    "bias by row": kernel("b: f32[M], C: bf16[M, N]", f"let x = b[i] + {SUM}; C[i, j] = x * x"),
    "scales by row and column": kernel("u: f32[M], v: f32[N], C: bf16[M, N]", f"C[i, j] = u[i] * v[j] * ({SUM})"),
    "residual": kernel("R: bf16[M, N], C: bf16[M, N]", f"C[i, j] = R[i, j] + {SUM}"),
    "residual, turned": kernel("R: f32[N, M], C: bf16[M, N]", f"C[i, j] = R[j, i] + {SUM}"),
    "rounded on the way": kernel("b: f32[N], C: f32[M, N]", f"C[i, j] = b[j] + f32(bf16(b[j] * ({SUM})))"),
    "held in 16 bits": kernel(
        "b: f32[N], C: f32[M, N]",
        "new s: f16; s = b[j]; seq K k { s += A[i, k] * B[k, j] }; s = f16(s * b[j]); C[i, j] = s",
    ),
    "read again": kernel("b: f32[N], C: bf16[M, N]", f"C[i, j] = b[j] * ({SUM}); C[i, j] = C[i, j] * b[j] + C[i, j]"),
    "in place": kernel(
        "b: f32[N], C: bf16[M, N]",
        "C[i, j] = 0.0; seq K k { C[i, j] += A[i, k] * B[k, j] }; C[i, j] = C[i, j] * b[j]; C[i, j] max= b[j]",
    ),
    "two outputs": kernel(
        "b: f32[N], C: bf16[M, N], D: f32[M, N]", f"let s = {SUM}; C[i, j] = s * b[j]; D[i, j] = s + D[i, j] + C[i, j]"
    ),
    "an output turned": kernel("C: bf16[M, N], D: f16[N, M]", f"let s = {SUM}; D[j, i] = s; C[i, j] = s"),
    "integers": kernel(
        "C: bf16[M, N], D: i32[M, N], E: i8[M, N]", f"let s = {SUM}; D[i, j] += i32(s); E[i, j] = i8(s); C[i, j] = s"
    ),
    "in f64": kernel("b: f64[N], C: f32[M, N]", f"C[i, j] = f32(b[j] * f64({SUM}))"),
    "chosen by place": kernel("b: f32[N], C: bf16[M, N]", f"let s = {SUM}; C[i, j] = select(j < i, b[j] * s, 0.0)"),
    "chosen by data": kernel("b: f32[N], C: bf16[M, N]", f"let s = {SUM}; C[i, j] = select(s > b[j], s, b[j])"),
    "looked up": kernel("t: f32[N], at: i32[M], C: bf16[M, N]", f"C[i, j] = t[at[i]] * ({SUM})"),
    "bound before": kernel(
        "b: f32[N], C: bf16[M, N], D: f32[M, N]", f"D[i, j] = b[j]; let x = D[i, j] + 1.0; C[i, j] = x * ({SUM})"
    ),
    "in another band": kernel("b: f32[N], C: bf16[M, N]", f"C[i, j] = b[j] * ({SUM})").replace(
        " }}", " } par M i, N j { C[i, j] = C[i, j] * b[j] + 1.0 } }"
    ),
    "in a workspace": (
        f"kernel g({ROWS}, b: f32[N], C: bf16[M, N]) {{ new t: f32[M, N]; par M i, N j {{ t[i, j] = {SUM} }}"
        " par M i, N j { C[i, j] = t[i, j] * b[j] } }"
    ),
    "two products": (
        f"kernel g({ROWS}, D: bf16[K, N], b: f32[N], C: bf16[M, N]) {{ par M i, N j {{"
        f" let u = b[j] * ({SUM}); let v = sum K k {{ D[k, j] * A[i, k] }}; C[i, j] = u * max(u, 0.0) + v }} }}"
    ),
    "three products into one element": (
        f"kernel g({ROWS}, D: bf16[N, K], inout C: f32[M, N]) {{ par M i, N j {{ C[i, j] += {SUM}; D_ }} }}".replace(
            "D_", "seq K k { C[i, j] += A[i, k] * D[j, k] }; seq K k { C[i, j] += A[i, k] * B[k, j] }"
        )
    ),
    "two products of other rows": kernel(
        "D: bf16[M, K], C: bf16[M, N]", f"let u = {SUM}; let v = sum K k {{ D[i, k] * B[k, j] }}; C[i, j] = u * v"
    ),
    "two products, turned": (
        f"kernel g({ROWS}, D: bf16[K, N], R: f32[M, N], C: bf16[N, M]) {{ par M i, N j {{"
        f" let u = {SUM}; let v = sum K k {{ D[k, j] * A[i, k] }}; C[j, i] = R[i, j] * u + v }} }}"
    ),
    "another type": kernel("C: f16[M, N]", f"C[i, j] = f16({SUM})"),
    "places": kernel("C: f32[M, N]", f"C[i, j] = f32(i32({SUM}) + 3) * 0.5"),
}  # fmt: skip


def chosen(program: str) -> Candidate:
    """What is chosen for large sizes."""
    found: Candidate = texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", **LARGE).mapping.candidate
    return found


def small(program: str, rows: int = 64, columns: int = 64, **how: int) -> Candidate:
    """The same in small tiles."""
    tile, given = {"i": rows, "j": columns}, {"stages": 2, "persistent": 1, "cluster": 1, **how}
    found = chosen(program)
    return replace(found, launches={name: replace(own, tile=tile, **given) for name, own in found.launches.items()})


def mapped(program: str, how: Candidate, **sizes: int) -> MappedProgram:
    found = texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", mapping=how, **sizes)
    return found.mapping.program


def arguments(program: MappedProgram, seed: int = 5) -> dict[str, Any]:
    """Factors of -1, 0 and 1, whose sums are exact in every type; what is beside them has all bits of its own."""
    random = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for buffer in program.kernel.params:
        shape, dtype = tuple(constant_value(extent) or 0 for extent in buffer.shape), TYPES[str(buffer.dtype)]
        if buffer.name in ("A", "B"):
            found[buffer.name] = random.integers(-1, 2, shape).astype(dtype)
        elif buffer.name == "at":
            found[buffer.name] = random.integers(0, shape[0], shape).astype(dtype)
        elif str(buffer.dtype).startswith("i"):
            found[buffer.name] = random.integers(-9, 9, shape).astype(dtype)
        else:
            found[buffer.name] = random.standard_normal(shape).astype(dtype)
    return found


def same(got: Any, expected: Any) -> None:
    for name, values in expected.items():
        np.testing.assert_array_equal(got[name].astype(np.float64), values.astype(np.float64), err_msg=name)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FORMS)
def test_what_is_around_a_product_is_done_with_its_sums(name: str) -> None:
    (own,) = chosen(FORMS[name]).launches.values()
    assert isinstance(own, Piped)
    program = mapped(FORMS[name], small(FORMS[name]), **EDGE)
    values = arguments(program)
    expected = interpret(program.kernel, {n: np.array(a) for n, a in values.items()}).outputs
    same(simulate(program, values), expected)


def test_epilogues_of_several_tiles_and_products_keep_apart() -> None:
    program = (
        "kernel g(A: bf16[P, M, K], B: bf16[N, K], R: f32[M, P, N], C: f16[P, N, M]) {"
        " par M i, N j, P p { C[p, j, i] = f16(R[i, p, j] * sum K k { A[p, i, k] * B[j, k] }) } }"
    )
    how = Piped(along="i", across="j", tile={"i": 128, "j": 64}, stages=2, persistent=2, cluster=2)
    found = texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", **LARGE, P=2)
    memory = found.mapping.candidate.launches["g_0"].memory
    own = mapped(program, Candidate(launches={"g_0": replace(how, memory=memory)}), M=72, N=72, K=24, P=2)
    values = arguments(own)
    same(simulate(own, values), interpret(own.kernel, values).outputs)


DIRECT = {
    "a part of C": ("inout C: bf16[M, N]", "par M - 5 i, J j", "C[i, j] = {}"),
    "every second one": ("inout C: f32[M, N]", "par M i, J j", "C[i, 2 * j] = {}"),
    "a row from the end": ("C: i8[M, J]", "par M i, J j", "C[M - 1 - i, j] = i8({})"),
}


@pytest.mark.parametrize("name", DIRECT)
def test_what_no_box_writes_threads_store(name: str) -> None:
    head, band, leaf = DIRECT[name]
    program = f"kernel g(A: bf16[M, K], B: bf16[J, K], D: f32[N], {head}) {{ {band} {{ {leaf} }} }}".replace(
        "{}", "sum K k { A[i, k] * B[j, k] }"
    )
    found = texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", M=512, N=1024, J=509, K=512)
    choice = found.mapping.candidate.launches["g_0"]
    assert isinstance(choice, Piped)
    how = replace(choice, tile={"i": 64, "j": 64}, stages=2, persistent=2, cluster=1)
    own = mapped(program, Candidate(launches={"g_0": how}), M=40, N=90, J=39, K=24)
    values = arguments(own)
    same(simulate(own, values), interpret(own.kernel, values).outputs)


NONE = {
    "one sum of all": kernel("C: bf16[M, N], inout r: f32[1]", f"let s = {SUM}; C[i, j] = s; r[0] max= s"),
    "a sum over the band, too": (
        "kernel g(A: bf16[M, P, K], B: bf16[P, K, N], inout C: f32[M, N]) {"
        " par P p, M i, N j { seq K k { C[i, j] += A[i, p, k] * B[p, k, j] } } }"
    ),
    "atomic": kernel("C: bf16[M, N], inout D: f32[M, N]", f"let s = {SUM}; C[i, j] = s; atomic D[i, j] += s"),
    "two products of other lengths": kernel(
        "C: bf16[M, N]", f"let u = {SUM}; let v = sum K - 64 k {{ A[i, k] * B[k, j] }}; C[i, j] = u * v"
    ),
    "two products, one of the other": kernel(
        "inout D: bf16[M, N], C: bf16[M, N]",
        f"D[i, j] = {SUM}; let v = sum K k {{ A[i, k] * B[k, j] * f32(D[i, j]) }}; C[i, j] = v",
    ),
    "two products of shifted rows": kernel(
        "C: bf16[M, N]", f"let u = {SUM}; let v = sum K k {{ A[M - 1 - i, k] * B[k, j] }}; C[i, j] = u * v"
    ),
    "a condition": kernel("C: bf16[M, N]", f"let s = {SUM}; if j < i {{ C[i, j] = s }}"),
    "two elements of an array": kernel("C: bf16[2, M, N]", f"let s = {SUM}; C[0, i, j] = s; C[1, i, j] = C[0, i, j]"),
    "its neighbour": kernel("C: bf16[M, 2 * N]", f"let s = {SUM}; C[i, j] = s + C[i, j + N]"),
    "another loop": kernel("b: f32[K], C: bf16[M, N]", f"let s = {SUM}; let t = sum K k {{ b[k] }}; C[i, j] = s * t"),
    "held in f64": kernel(
        "C: f32[M, N]", "new s: f64; s = 0.0; seq K k { s += f64(A[i, k] * B[k, j]) }; C[i, j] = f32(s)"
    ),
    "read while it is summed": "kernel g(A: bf16[M, K], B: bf16[N, N], inout C: bf16[M, N]) {"
    " par M i, N j { C[i, j] += sum N k { C[i, k] * B[k, j] } } }",
}  # fmt: skip


@pytest.mark.parametrize("name", NONE)
def test_what_iterations_share_and_what_is_more_than_leaves_is_none_of_the_tensor_cores(name: str) -> None:
    extra = {"P": 2} if "P p" in NONE[name] else {}
    try:
        found = texpr.parse(NONE[name]).only.compile("cuda:sm_90a", stop_after="map", **LARGE, **extra)
    except texpr.TExprError as refused:  # another stage has a word against it
        assert refused.diagnostics[0].code.startswith("E03")
        return
    assert not any(isinstance(own, Piped) for own in found.mapping.candidate.launches.values())


@pytest.mark.gxx
def test_the_text_of_an_epilogue_is_right_on_the_cpu() -> None:
    program = kernel(
        "b: bf16[N], R: bf16[M, N], alpha: f32, C: bf16[M, N], D: f32[N, M]",
        f"let s = alpha * ({SUM}) + b[j]; C[i, j] = s * sigmoid(s) + R[i, j]; D[j, i] += s",
    )
    own = small(program, 128, 128, cluster=2, persistent=4)
    values = arguments(mapped(program, own, **SMALL))
    expected = interpret(mapped(program, own, **SMALL).kernel, values).outputs
    got = {name: np.array(value) for name, value in values.items()}
    texpr.parse(program).only.compile("cuda-host:sm_90a", mapping=own, **SMALL)(**got)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name].astype(float), value.astype(float), rtol=1e-2 if name == "C" else 1e-5)


PAIRS = (
    ("b: bf16[N], C: bf16[M, N]", "C[i, j] = b[j] + {}", {"b_pair": (8, 2)}),  # of all columns of a tile
    ("R: f32[M, N], C: bf16[M, N]", "C[i, j] = R[i, j] * {}", {"R_pair": (2,)}),
    ("R: f32[N, M], C: bf16[M, N]", "C[i, j] = R[j, i] * {}", {}),
    ("b: f32[N + 1], C: bf16[M, N]", "C[i, j] = b[j + 1] + {}", {}),  # begins between pairs
    ("b: bf16[N + 1], C: bf16[M, N]", "C[i, j] = select(i < 3, b[j], 1.0) * {}", {}),  # a longer array
    ("b: bf16[N] #align(2), C: bf16[M, N]", "C[i, j] = b[j] + {}", {}),
    ("inout C: bf16[M, N]", "C[i, j] = C[i, j] + {}", {}),  # what is written
)


@pytest.mark.parametrize(("head", "body", "found"), PAIRS, ids=lambda value: str(value)[:24])
def test_neighbours_are_read_at_once_where_pairs_are_aligned_and_nobody_writes_them(
    head: str, body: str, found: dict[str, tuple[int, ...]]
) -> None:
    program = kernel(head, body.replace("{}", f"({SUM})"))
    sizes = {"M": 72, "N": 88, "K": 24}
    own = mapped(program, small(program), **sizes)
    held = {name: buffer for name, buffer in own.buffers.items() if name.endswith("_pair")}
    assert {name: tuple(constant_value(n) for n in buffer.shape) for name, buffer in held.items()} == found


THREE = (
    "kernel g(A: bf16[M, K], B: bf16[N, K], D: bf16[N, K], E: bf16[N, K],"
    " C: bf16[M, N], F: bf16[M, N], G: bf16[M, N]) {"
    + "".join(
        f" par M i, N j {{ {c}[i, j] = sum K k {{ A[i, k] * {b}[j, k] }} }}"
        for c, b in (("C", "B"), ("F", "D"), ("G", "E"))
    )
    + " }"
)


def test_products_of_one_factor_are_one_launch_where_that_is_no_slower() -> None:
    shapes = []
    for n in (512, 4096):
        found = texpr.parse(THREE).only.compile("cuda:sm_90a", stop_after="map", M=n, N=n, K=n).mapping.candidate
        shapes.append([tuple(own.tile.values()) for own in found.launches.values()])
    assert shapes == [[(64, 32)], [(128, 64)]]
