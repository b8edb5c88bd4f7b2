# ruff: noqa: B007, E741, F821, F841, N803 -- kernels are read, not run: sizes stand in strings, tensors have capitals
"""The table "From Python": each row gives the tree that the text front end gives."""

from front_end import same

from texpr.language import (
    anchor,
    asm,
    atomic,
    attr,
    bf16,
    exp,
    f16,
    f32,
    fragment,
    fully_par,
    i32,
    inout,
    inp,
    new,
    out,
    par,
    prod,
    reg,
    select,
    seq,
)

BM = 64


def test_the_page_s_first_kernel_is_the_same_in_both_languages() -> None:
    def matmul(A: f16["M", "K"], B: f16["K", "N"], C: f32["M", "N"]):
        for i, j in par("M", "N"):
            C[i, j] = 0.0
            for k in seq("K"):
                C[i, j] += A[i, k] * B[k, j]

    same(
        matmul,
        "kernel matmul(A: f16[M, K], B: f16[K, N], C: f32[M, N]) "
        "{ par M i, N j { C[i, j] = 0.0; seq K k { C[i, j] += A[i, k] * B[k, j] } } }",
    )


def test_a_band_takes_strings_bare_expressions_and_attributes() -> None:
    def f(C: f32["M", "N"]):
        for i, j in par("M", N - 2, "#tile(64, 64)"):
            C[i, j] = 0.0
        for i in par("ceildiv(M, 128)", "#tile(block: 128, 128, warp: 64, 32)", "#grid"):
            C[i, 0] = 0.0
        for i in par(128):
            C[i, 0] = 0.0

    same(
        f,
        "kernel f(C: f32[M, N]) { par M i, N - 2 j #tile(64, 64) { C[i, j] = 0.0 }\n"
        "par ceildiv(M, 128) i #tile(block: 128, 128, warp: 64, 32) #grid { C[i, 0] = 0.0 }\n"
        "par 128 i { C[i, 0] = 0.0 } }",
    )


def test_ranges_have_two_sides() -> None:
    def f(C: f32["N"]):
        for i in par(range(1, N - 1)):
            for k in seq("1..N - 1", "#ordered"):
                C[i] += 1.0
        for i in par(range(N)):
            C[i] = 0.0

    same(
        f,
        "kernel f(C: f32[N]) { par 1..N - 1 i { seq 1..N - 1 k #ordered { C[i] += 1.0 } } par N i { C[i] = 0.0 } }",
    )


def test_fully_par_asm_reg_fragment_and_anchor_have_their_forms() -> None:
    def f(A: f16[16, 16], C: f32[16, 8]):
        for lane in fully_par(32, "#align(32) #block"):
            ra = reg(f16[8], fragment(A, mma16816.a, lane))
            rc = reg(fragment(C, mma16816.c, lane))
            asm("mma.sync {%0}, {%1};", inout=(rc,), in_=(ra, rc), out=ra, clobber="memory")
            fragment[C, mma16816.c, lane] = rc
            anchor(rc[0])

    same(
        f,
        "kernel f(A: f16[16, 16], C: f32[16, 8]) { fully par 32 lane #align(32) #block {\n"
        "reg ra: f16[8] = fragment(A, mma16816.a, lane)\nreg rc = fragment(C, mma16816.c, lane)\n"
        'asm("mma.sync {%0}, {%1};", inout: rc, in: ra, rc, out: ra, clobber: "memory")\n'
        "fragment(C, mma16816.c, lane) = rc\nanchor rc[0] } }",
    )


def test_new_has_a_type_a_memory_and_attributes() -> None:
    def f(A: f32["N"]):
        t = new(f16[128, 64], "shared", "#strides(72, 1)")
        u = new(f16["N", BM, "#align(32)"])
        s = new(f32)
        flat = new(16)
        s = 0.0
        s += A[0]
        A[0] = s

    same(
        f,
        "kernel f(A: f32[N]) { new shared t: f16[128, 64] #strides(72, 1)\nnew u: f16[N, 64] #align(32)\nnew s: f32\n"
        "new flat 16\ns = 0.0\ns += A[0]\nA[0] = s }",
    )


def test_an_assignment_is_a_let_for_a_new_name_and_a_bind_for_a_buffer() -> None:
    def f(A: f32["N"], total: inout(f32)):
        for i in par("N"):
            x = A[i] * 2.0
            tile = A[i:16]
            y = reg(f32, x)
            y = max(y, x)
            total = y
            total += x

    same(
        f,
        "kernel f(A: f32[N], inout total: f32) { par N i { let x = A[i] * 2.0; let tile = A[i:16]; reg y: f32 = x\n"
        "y = max(y, x)\ntotal = y\ntotal += x } }",
    )


def test_the_same_name_is_a_let_in_each_of_two_blocks() -> None:
    def f(A: f32["N"]):
        for i in par("N"):
            if i > 0:
                x = 1.0
                A[i] = x
            else:
                x = 2.0
                A[i] = x

    same(
        f,
        "kernel f(A: f32[N]) { par N i { if i > 0 { let x = 1.0; A[i] = x } else { let x = 2.0; A[i] = x } } }",
    )


def test_atomic_and_attr_reach_the_assignments_of_their_blocks() -> None:
    def f(H: i32["B"], C: f32["N"]):
        for i in par("N"):
            with atomic:
                H[i % 4] += 1
                H[0] = max(H[0], i32(i))
            with attr("#tf32"):
                C[i] += 1.0
            with attr("#unique"), atomic:
                C[i] = min(2.0, C[i])
            with attr("#strict #fast"):
                for k in seq(4):
                    C[i] += f32(k)

    same(
        f,
        "kernel f(H: i32[B], C: f32[N]) { par N i { atomic H[i % 4] += 1; atomic H[0] max= i32(i)\nC[i] += 1.0 #tf32\n"
        "atomic C[i] min= 2.0 #unique\nseq 4 k { C[i] += f32(k) #strict #fast } } }",
    )


def test_reductions_are_generators() -> None:
    def f(A: f32["M", "K"], C: f32["M"]):
        for i in par("M"):
            C[i] = sum(A[i, k] for k in seq("K"))
            C[i] = prod(A[i, k] for k in seq(K, "#ordered"))
            C[i] = max(A[i, k] for k in seq(range(1, K))) - min(A[k, l] for k, l in seq("M", "K"))

    same(
        f,
        "kernel f(A: f32[M, K], C: f32[M]) { par M i { C[i] = sum K k { A[i, k] }\n"
        "C[i] = prod K k #ordered { A[i, k] }; C[i] = maximum 1..K k { A[i, k] } - minimum M k, K l { A[k, l] } } }",
    )


def test_parameters_take_directions_attributes_and_scalars() -> None:
    def f(
        A: inp(f16["M", "K"], "#strides(1, M)"), B: out(f32["M + 1"]), C: inout(bf16["2 * K"], "#align(32)"), alpha: f32
    ):
        B[0] = alpha

    same(
        f,
        "kernel f(in A: f16[M, K] #strides(1, M), out B: f32[M + 1], inout C: bf16[2 * K] #align(32), alpha: f32) "
        "{ B[0] = alpha }",
    )


def test_the_decorator_s_strings_are_attributes_and_facts_of_the_kernel() -> None:
    def f(A: f32["N"]):
        A[0] = 1.0

    same(
        f,
        "kernel f(A: f32[N]) where N % 8 == 0, N <= 65536 #persistent #threads(256) { A[0] = 1.0 }",
        attrs=("#persistent", "#threads(256)"),
        where="N % 8 == 0, N <= 65536",
    )


def test_conditions_and_choices() -> None:
    def f(A: f32["N"]):
        for i in par("N"):
            if i < 4 and not (i == 2 or i >= N - 1):
                A[i] = 1.0 if A[i] > 0.0 else -1.0
            elif i != 5:
                A[i] = select(i > 0, A[i - 1], 0.0)
            else:
                if True:
                    A[i] = 2.0

    same(
        f,
        "kernel f(A: f32[N]) { par N i { if i < 4 and not (i == 2 or i >= N - 1) "
        "{ A[i] = select(A[i] > 0.0, 1.0, -1.0) } else if i != 5 { A[i] = select(i > 0, A[i - 1], 0.0) } "
        "else { if true { A[i] = 2.0 } } } }",
    )


def test_operators_become_functions_where_texpr_has_no_sign() -> None:
    def f(A: f32["N"], B: i32["N"]):
        for i in par("N"):
            A[i] = A[i] ** 2 + exp(-A[i]) / 3
            B[i] = (B[i] & 1) | (B[i] ^ 3) | (B[i] << 2) | (B[i] >> 1)
            B[i] = B[i // 2] // 2 % 5
            A[i] = +A[i] + f32(B[i]) + abs(A[i]) + round(A[i]) + pow(A[i], 2)

    same(
        f,
        "kernel f(A: f32[N], B: i32[N]) { par N i { A[i] = pow(A[i], 2) + exp(-A[i]) / 3\n"
        "B[i] = bitor(bitor(bitor(bitand(B[i], 1), bitxor(B[i], 3)), shl(B[i], 2)), shr(B[i], 1))\n"
        "B[i] = B[i / 2] / 2 % 5; A[i] = A[i] + f32(B[i]) + abs(A[i]) + round(A[i]) + pow(A[i], 2) } }",
    )


def test_slices_are_start_and_extent() -> None:
    def f(A: f32["M", "N"]):
        tile = A[0:16, 8:8]
        A[0:16, 0] = tile[0:16, 0]

    same(f, "kernel f(A: f32[M, N]) { let tile = A[0:16, 8:8]; A[0:16, 0] = tile[0:16, 0] }")


def test_a_gather_is_a_subscript_that_reads() -> None:
    def f(A: f32["N"], idx: i32["M"], C: f32["M"]):
        for i in par("M"):
            C[i] = A[idx[i] + 1]

    same(f, "kernel f(A: f32[N], idx: i32[M], C: f32[M]) { par M i { C[i] = A[idx[i] + 1] } }")


def test_comments_and_the_docstring_are_trivia_as_in_a_text() -> None:
    def f(A: f32["N"]):
        """What it does.

        And how.
        """
        # why
        for i in par("N"):  # the loop
            x = A[i]  # the element
            if i > 0:
                A[i] = x  # kept

                # nothing more

            # the other half
            else:
                pass  # empty
            A[i] = (
                1.0  # one
                + 2.0
            )
            # the end
        # last

    same(
        f,
        """-- What it does.
--
-- And how.
kernel f(A: f32[N]) {
    -- why
    par N i {
        -- the loop
        let x = A[i] -- the element
        if i > 0 {
            A[i] = x -- kept

            -- nothing more
        } else {
            -- the other half

            -- empty
        }
        -- one
        A[i] = 1.0 + 2.0
        -- the end
    }
    -- last
}
""",
    )


def test_pass_leaves_nothing() -> None:
    def f(A: f32["N"]):
        pass

    same(f, "kernel f(A: f32[N]) { }")
