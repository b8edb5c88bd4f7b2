"""What `texpr explain CODE` tells beyond the code's line in `codes.py`: cause, mend, a wrong program and a right one.

Every `wrong` gives its code, and every `right` is accepted (a test runs them); codes without programs are about files,
machines and calls.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """A paragraph, and programs: bodies of a kernel `k`, or whole texts where they begin with a keyword of a file."""

    text: str
    wrong: str = ""
    right: str = ""


EXPLANATIONS: dict[str, Explanation] = {
    "E0101": Explanation(
        "The parser says what it met and what could stand there; it goes on at the next statement, so one run shows "
        "all such mistakes of a file. Loops are `par extent index { … }` and `seq extent index { … }`.",
        "kernel k(A: f32[N]) { for i in N { A[i] = 1.0 } }",
        "kernel k(A: f32[N]) { par N i { A[i] = 1.0 } }",
    ),
    "E0102": Explanation(
        "A bracket that is still open at a brace, a statement or the end of the text is reported where it was opened.",
        "kernel k(A: f32[N]) { par N i { A[i = 1.0 } }",
        "kernel k(A: f32[N]) { par N i { A[i] = 1.0 } }",
    ),
    "E0103": Explanation(
        "Texts up to 1 MiB, 64 nested blocks, expressions of height 128 and integers of 64 bits are read. Split the "
        "file, name parts with `let`, or use a `seq` or a reduction in place of a long sum.",
    ),
    "E0104": Explanation(
        "Characters that change how a text looks, but not how it reads, hide programs from reviewers: control "
        "characters and marks of writing direction. Comments may hold any letters.",
        "kernel k(A: f32[N]) { par N i { A[i] = 1.0 } } -- \u202e",
        "kernel k(A: f32[N]) { par N i { A[i] = 1.0e-6 } } -- \u00b5",
    ),
    "E0105": Explanation(
        "A decorated function is parsed, never run. Its body may hold `for … in par(…)` and `seq(…)`, assignments, "
        "`if`, `with atomic` and `with attr(…)`, calls of the language's functions and of `texpr.fn` objects, and "
        "numbers of the enclosing scope.",
    ),
    "E0106": Explanation("The function's text must be in a file or a notebook cell: a REPL or `exec` keeps none."),
    "E0201": Explanation(
        "Sizes are the names in shapes and extents; indices live inside their loop; buffers are parameters and `new`s.",
        "kernel k(A: f32[N]) { par N i { A[j] = 1.0 } }",
        "kernel k(A: f32[N]) { par N i { A[i] = 1.0 } }",
    ),
    "E0202": Explanation(
        "A name means one thing in a kernel, so that a reader never asks which.",
        "kernel k(A: f32[N]) { par N i { par N i { A[i] = 1.0 } } }",
        "kernel k(A: f32[N, N]) { par N i { par N j { A[i, j] = 1.0 } } }",
    ),
    "E0203": Explanation(
        "A buffer of two dimensions takes two subscripts; a rank-0 buffer is read and bound by its bare name.",
        "kernel k(A: f32[N, 4]) { par N i { A[i] = 1.0 } }",
        "kernel k(A: f32[N, 4]) { par N i, 4 j { A[i, j] = 1.0 } }",
    ),
    "E0204": Explanation(
        "Floats go to the wider type and integers to 32 or 64 bits; integers and floats, or a value and a narrower "
        "integer, mix only by a cast that is written.",
        "kernel k(A: f32[N], B: i32[N]) { par N i { A[i] = A[i] + B[i] } }",
        "kernel k(A: f32[N], B: i32[N]) { par N i { A[i] = A[i] + f32(B[i]) } }",
    ),
    "E0205": Explanation(
        "`docs/language.md` has the table of attributes with the constructs that they stand on.",
        "kernel k(A: f32[N]) { par N i #ordered { A[i] = 1.0 } }",
        "kernel k(A: f32[N], s: f32[1]) { seq N i #ordered { s[0] += A[i] } }",
    ),
    "E0206": Explanation(
        "Extents and affine subscripts are built from integers, sizes and indices by + - * / % (by a constant or bound "
        "size), min, max and ceildiv; that is what proofs reason about. A loop whose length is data runs over the "
        "greatest length with an `if`.",
        "kernel k(A: f32[N], L: i32[1]) { par L[0] i { A[i] = 1.0 } }",
        "kernel k(A: f32[N], L: i32[1]) { par N i { if i < L[0] { A[i] = 1.0 } } }",
    ),
    "E0207": Explanation(
        "A function's array parameters take buffers or slices of their rank, its scalars take values.",
        "fn f(a: f32, out b: f32[n]) { seq n i { b[i] = a } }\nkernel k(A: f32[N]) { f(1.0) }",
        "fn f(a: f32, out b: f32[n]) { seq n i { b[i] = a } }\nkernel k(A: f32[N]) { f(1.0, A) }",
    ),
    "E0208": Explanation(
        "A call is replaced by the function's body, so a function cannot reach itself. Write a `seq`.",
        "fn f(a: f32): f32 { return f(a) }\nkernel k(A: f32[N]) { par N i { A[i] = f(1.0) } }",
        "fn f(a: f32): f32 { return a * 2.0 }\nkernel k(A: f32[N]) { par N i { A[i] = f(1.0) } }",
    ),
    "E0209": Explanation(
        "Indices, sizes, `let`s and scalar parameters are values; write to a buffer.",
        "kernel k(s: f32, A: f32[N]) { par N i { s = A[i] } }",
        "kernel k(S: f32[N], A: f32[N]) { par N i { S[i] = A[i] } }",
    ),
    "E0210": Explanation(
        "`import std.mma` is a file of the standard library; `import parts.rows` is `parts/rows.tex` under the folder "
        "of the importing file. An import never leaves that folder.",
        "import std.nothing\nkernel k(A: f32[N]) { par N i { A[i] = 1.0 } }",
        "import std.mma\nkernel k(A: f32[N]) { par N i { A[i] = 1.0 } }",
    ),
    "E0211": Explanation("`-D NAME=VALUE`, `sizes=` and `types=` name sizes and buffers of the kernel, and fit them."),
    "E0212": Explanation(
        "For example `return` stands in a `fn`, and `size` at the level of the file or the kernel.",
        "kernel k(A: f32[N]) { par N i { A[i] = 1.0; return A[i] } }",
        "fn one(): f32 { return 1.0 }\nkernel k(A: f32[N]) { par N i { A[i] = one() } }",
    ),
    "E0301": Explanation(
        "Iterations of a `par` may run at once and in any order, so one must not write what another touches. Make the "
        "loop a `seq`, write to elements of the iteration's own, read from another buffer, or accumulate with one "
        "operator (`+=`, `max=`), which is a reduction. The witness is the least pair of iterations.",
        "kernel k(A: f32[N], inout C: f32[N]) { par N i { C[i / 2] = A[i] } }",
        "kernel k(A: f32[N], inout C: f32[N]) { par N i { C[i / 2] += A[i] } }",
    ),
    "E0302": Explanation(
        "Every affine subscript is proved inside its buffer for all iterations and all sizes that `where` admits. "
        "Shorten the loop, guard the access with an `if` or a `select` on indices, or state a fact of the sizes.",
        "kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i + 1] } }",
        "kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = select(i + 1 < N, A[i + 1], 0.0) } }",
    ),
    "E0303": Explanation(
        "A `new` is undefined at each entry of its block, also in every iteration of a `seq` around it.",
        "kernel k(A: f32[N]) { par N i { new t: f32[2]; t[0] = 1.0; A[i] = t[1] } }",
        "kernel k(A: f32[N]) { par N i { new t: f32[2]; t[1] = 1.0; A[i] = t[1] } }",
    ),
    "E0304": Explanation(
        "An `out` buffer holds nothing before the kernel, so every element must be written. Declare it `inout` to keep "
        "what the kernel does not write.",
        "kernel k(out A: f32[N + 1]) { par N i { A[i] = 1.0 } }",
        "kernel k(inout A: f32[N + 1]) { par N i { A[i] = 1.0 } }",
    ),
    "E0305": Explanation(
        "Declare the parameter `inout` or `out`, or leave the direction out: it is inferred.",
        "kernel k(in A: f32[N]) { par N i { A[i] = 1.0 } }",
        "kernel k(A: f32[N]) { par N i { A[i] = 1.0 } }",
    ),
    "E0306": Explanation(
        "While sizes are free, `A[i * N + j]` is split into (i, j) where 0 <= j < N is provable. Declare the buffer "
        "with its dimensions, or bind the sizes.",
        "par M i { par N j { C[i * N + 2 * j] = 1.0 } }",
        "par M i { par N j { C[i * N + j] = 1.0 } }",
    ),
    "E0307": Explanation(
        "Proofs count their steps, so that they end the same way on every machine. Bind sizes, simplify subscripts "
        "(large unaligned moduli are the usual cause), or split the kernel."
    ),
    "E0308": Explanation(
        "Products and quotients of free sizes with indices are beyond integer sets. Bind the size with `-D` or `size`.",
        "kernel k(A: f32[N, M]) { par N i, M j { A[i, j] = 1.0; if i * M + j > 5 { A[i, j] = 2.0 } } }",
        "kernel k(A: f32[N, 8]) { par N i, 8 j { A[i, j] = 1.0; if i * 8 + j > 5 { A[i, j] = 2.0 } } }",
    ),
    "E0401": Explanation("The message says which attribute, size or limit stands in the way of a mapping."),
    "E0402": Explanation(
        "The attribute belongs to the language, and this version has no mapping for it. It is refused rather than "
        "ignored: remove it, or choose a target that honours it."
    ),
    "E0403": Explanation("Make the buffer smaller, or kernel-level: a workspace in global memory."),
    "E0503": Explanation('`pip install "texpr[cuda]"` brings nvcc; `cpu` needs no compiler at all.'),
    "E0505": Explanation("Build the artifact again with this version; `cpu` and `cuda-host` artifacts hold text only."),
    "E0601": Explanation("The arrays' number, type, shape, strides and alignment are checked before anything runs."),
    "E0602": Explanation("A free size is solved from the shapes; one that stands in no shape is given by keyword."),
    "E0603": Explanation("Distinct parameters do not share memory, unless all of them are only read."),
    "E0604": Explanation(
        "A subscript from data was out of range, a promise (`#unique`) was broken, or `cuda-host` found a race, an "
        "access out of bounds or threads that do not meet at a barrier."
    ),
    "E0608": Explanation("Nothing half-written is left: make room, or name a place on another disk."),
}
