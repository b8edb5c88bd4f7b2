"""What `texpr explain CODE` tells beyond the code's line in `codes.py`: cause, mend, a wrong program and a right one.

Every `wrong` gives its code, and every `right` is accepted by all stages (a test compiles them); codes without programs
are about files, machines and calls.
"""

from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """A paragraph, a wrong program and the right one, and further pairs, one for each other mend that the paragraph
    names. Programs are texts, or Python files where they begin with `import`."""

    text: str
    wrong: str = ""
    right: str = ""
    more: tuple[tuple[str, str], ...] = ()

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return ((self.wrong, self.right), *self.more) if self.wrong else ()


PYTHON = 'import texpr\nfrom texpr import f32, par\n\n@texpr.kernel\ndef k(A: f32["N"]):'

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
        f"{PYTHON}\n    for i in range(N):\n        A[i] = 1.0\n",
        f'{PYTHON}\n    for i in par("N"):\n        A[i] = 1.0\n',
    ),
    "E0106": Explanation(
        "The function's text must be in a file or a notebook cell: a REPL or `exec` keeps none. On the command line a "
        "Python file is read and never run, so numbers that a kernel uses are written out.",
        f'import os\nROWS = int(os.environ["N"])\n{PYTHON}\n    for i in par(ROWS):\n        A[i] = 1.0\n',
        f'{PYTHON}\n    for i in par("N"):\n        A[i] = 1.0\n',
    ),
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
        "kernel k(A: f64[N], s: f64[1]) { seq N i #ordered { s[0] += A[i] } }",
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
        "Iterations of a `par` may run at once and in any order, so one must not write what another touches. Where the "
        "order matters, make the loop a `seq`; what adds up is an accumulation with one operator (`+=`, `max=`), which "
        "is a reduction; what reads its neighbours reads from another buffer. The witness is the least pair of "
        "iterations.",
        "kernel k(A: f32[N], inout C: f32[N]) { par N i { C[i / 2] = A[i] } }",
        "kernel k(A: f32[N], inout C: f32[N]) { seq N i { C[i / 2] = A[i] } }",
        (
            (
                "kernel k(A: f32[N], inout s: f32[1]) { par N i { s[0] = s[0] + A[i] } }",
                "kernel k(A: f32[N], inout s: f32[1]) { par N i { s[0] += A[i] } }",
            ),
            (
                "kernel k(inout C: f32[N]) { par N - 1 i { C[i] = C[i + 1] } }",
                "kernel k(C: f32[N], inout B: f32[N]) { par N - 1 i { B[i] = C[i + 1] } }",
            ),
        ),
    ),
    "E0302": Explanation(
        "Every affine subscript is proved inside its buffer for all iterations and all sizes that `where` admits. "
        "Shorten the loop, guard the access with an `if` or a `select` on indices, or state a fact of the sizes.",
        "kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i + 1] } }",
        "kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = select(i + 1 < N, A[i + 1], 0.0) } }",
        (
            (
                "kernel k(A: f32[N], inout B: f32[N]) { par N i { B[i] = A[i + 1] } }",
                "kernel k(A: f32[N], inout B: f32[N]) { par N - 1 i { B[i] = A[i + 1] } }",
            ),
            (
                "kernel k(A: f32[M], B: f32[N]) { par N i { B[i] = A[i] } }",
                "kernel k(A: f32[M], B: f32[N]) where N <= M { par N i { B[i] = A[i] } }",
            ),
        ),
    ),
    "E0303": Explanation(
        "A `new` is undefined at each entry of its block, also in every iteration of a `seq` around it. After an `if` "
        "on data it is defined where both arms bind it.",
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
        "Products and quotients of free sizes with indices are beyond integer sets, but for an index of at most 32 "
        "values: `par 8 p { … A[p * (K / 8) + k] … }`. Bind the size with `-D` or `size`.",
        "kernel k(A: f32[N, M]) { par N i, M j { A[i, j] = 1.0; if i * M + j > 5 { A[i, j] = 2.0 } } }",
        "kernel k(A: f32[N, 8]) { par N i, 8 j { A[i, j] = 1.0; if i * 8 + j > 5 { A[i, j] = 2.0 } } }",
    ),
    "E0401": Explanation(
        "The message says which attribute, size or limit stands in the way of a mapping: bind the size, give the "
        "attribute another value, or leave it away.",
        "kernel k(A: f32[N, M]) { par N i { seq M j #unroll { A[i, j] = 1.0 } } }",
        "kernel k(A: f32[N, M]) { par N i { seq M j { A[i, j] = 1.0 } } }",
    ),
    "E0402": Explanation(
        "The attribute belongs to the language, and this version maps it to no target, or not on this loop. It is "
        "refused rather than ignored. Without it the compiler chooses.",
        "kernel k(A: f32[N], s: f32[1]) { s[0] = sum N i #tile(64) { A[i] } }",
        "kernel k(A: f32[N], s: f32[1]) { s[0] = sum N i { A[i] } }",
        (
            (
                "kernel k(A: f64[N]) #tf32 { par N i { A[i] = A[i] * A[i] } }",
                "kernel k(A: f64[N]) { par N i { A[i] = A[i] * A[i] } }",
            ),
        ),
    ),
    "E0403": Explanation(
        "Make the buffer smaller, or leave the place to the compiler, which has all of global memory for it.",
        "kernel k(A: f32[M, 64]) { par M i { new shared t: f32[64000]; par 64 j { t[j] = A[i, j] }; "
        "par 64 j { A[i, j] = t[63 - j] } } }",
        "kernel k(A: f32[M, 64]) { par M i { new shared t: f32[64]; par 64 j { t[j] = A[i, j] }; "
        "par 64 j { A[i, j] = t[63 - j] } } }",
    ),
    "E0404": Explanation(
        "Only a mapping from outside names moves (`moves` of its JSON). Each one is proved to keep what depends on one "
        "another in order: the message has the two iterations that would not be. Leave the move out, or map the kernel "
        "anew: names of loops and statements are those of `texpr map`."
    ),
    "E0502": Explanation(
        "The construct has a meaning, which the interpreter runs, and this version emits it for no target yet.",
        "kernel k(A: f32[32]) { fully par 32 |l| #align(32) #block { A[l] = 1.0 } }",
        "kernel k(A: f32[32]) { par 32 l { A[l] = 1.0 } }",
    ),
    "E0503": Explanation('`pip install "texpr[cuda]"` brings NVRTC and nvcc; `cpu` needs no compiler at all.'),
    "E0505": Explanation("Build the artifact again with this version; `cpu` and `cuda-host` artifacts hold text only."),
    "E0601": Explanation(
        "The arrays' number, type, shape, strides and alignment are checked before anything runs. On a GPU a call runs "
        "on the current stream of torch or cupy; where the two differ, or a library has none, `stream=` says which."
    ),
    "E0602": Explanation("A free size is solved from the shapes; one that stands in no shape is given by keyword."),
    "E0603": Explanation("Distinct parameters do not share memory, unless all of them are only read."),
    "E0604": Explanation(
        "A subscript from data was out of range, a promise (`#unique`) was broken, or `cuda-host` found a race, an "
        "access out of bounds or threads that do not meet at a barrier."
    ),
    "W0301": Explanation(
        "`inout` says that a kernel reads what the caller gives and writes over it. Declare what it does, or leave the "
        "direction out: it is inferred.",
        "kernel k(inout A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }",
        "kernel k(in A: f32[N], out B: f32[N]) { par N i { B[i] = A[i] } }",
    ),
    "W0302": Explanation(
        "`/` floors, so the last part of a range that does not divide is not run. Round up and guard the last part, or "
        "say that it divides.",
        "kernel k(inout A: f32[100]) { par 100 / 16 b, 16 i { A[16 * b + i] = 1.0 } }",
        "kernel k(A: f32[100]) { par ceildiv(100, 16) b, 16 i { if 16 * b + i < 100 { A[16 * b + i] = 1.0 } } }",
    ),
    "W0303": Explanation(
        "An f32 has 24 bits: a long serial sum loses what each term adds. Without `#ordered` it is cut in partials "
        "of 4096 terms that are added in f64; in f64 it may stay serial.",
        "kernel k(A: f32[N], s: f32[1]) { seq N i #ordered { s[0] += A[i] } }",
        "kernel k(A: f32[N], s: f32[1]) { seq N i { s[0] += A[i] } }",
    ),
    "E0701": Explanation(
        "Tiles hold at least one index each and add up to the extent. A named subrange begins and ends between tiles: "
        "give one extent for all tiles, which begin anew there, or tiles with bounds there. A tensor's data is a "
        "NumPy array of its shape and type, which it works on in place."
    ),
    "E0702": Explanation(
        "Tensors are subscripted by tiles, from 0 to the number of tiles less 1, by `start:stop` and by the names of "
        "subranges; a number for every dimension is a block, anything else a slice."
    ),
    "E0703": Explanation(
        "`submit(fn, may_read(A), write(B[0]), args=(…))`: permissions are on tensors, slices and blocks, accesses on "
        "one block each, one access for a block. A buffer is asked for as its access was declared."
    ),
    "E0704": Explanation(
        "Where a task declares permissions for a block, its accesses must be within them; an access to any other "
        "block brings its own. A read permission allows reads, an accumulate permission allows additions, write "
        "permissions allow everything."
    ),
    "E0705": Explanation(
        "Others wait for a parent only, so a child may touch no more than its parent: under a read permission it "
        "reads, under an accumulate permission it accumulates. After a child was submitted, what depends on it is a "
        "further child."
    ),
    "E0706": Explanation(
        "`release_put`, `release_add`, `release` and `cancel` each end a buffer, and so does the end of the task: its "
        "memory may belong to others afterwards."
    ),
    "E0707": Explanation(
        "Nothing is committed because a variable goes away. A task that asks for a buffer to modify says what becomes "
        "of it: `release_put`, `release_add`, or `cancel`."
    ),
    "E0708": Explanation(
        "A buffer may be the block's own memory, so only it can be committed, and not left half changed. Ask for a "
        "cancellable buffer (`get_buf_cwrite`, …) or a temporary one to work on copies and decide later."
    ),
    "E0709": Explanation("A block that the tensor's rule calls zero reads as zeros; leave it out, or change the rule."),
    "E0710": Explanation(
        "A task that fails, or gives a buffer up after it was handed out, leaves the blocks that it could have "
        "written without values; tasks that need them are cancelled. A task that writes the whole block mends it."
    ),
    "E0711": Explanation(
        "Functions of tasks never wait for tasks: they would hold what the others need. What follows from a result is "
        "submitted as a child. After `shutdown` or `abort` an engine takes no tasks."
    ),
    "E0712": Explanation(
        "All blocks that a task declares, and its temporary and cancellable buffers, are in its memory at once. Raise "
        "the bound, use smaller tiles, or split the task."
    ),
    "E0713": Explanation(
        "A write permission is exclusive, so reading under it is in order; a strict engine refuses it all the same "
        "where the task has not written the block, as it is mostly a mistake. Declare `may_read_write`."
    ),
    "E0714": Explanation("Nothing runs and nothing is on its way, but tasks wait: they fail, and the engine goes on."),
    "E0715": Explanation(
        "The exception's cause is what the function raised. Other tasks went on, but for those that needed what the "
        "task should have written; `task.exception()` tells of each."
    ),
    "E0716": Explanation(
        "A plain function, and a kernel compiled for `cpu`, run on CPU workers; a kernel compiled for `cuda` runs on "
        "GPU workers. `FunctionDefinition(cpu=…, cuda=…)` gives a version for each."
    ),
    "E0721": Explanation(
        "`pip install 'texpr[mpi]'` brings mpi4py and MPICH from the package index. With an MPI of the machine's "
        "own, as on a cluster, install mpi4py alone and see that its library is found."
    ),
    "E0722": Explanation(
        "A launcher starts the ranks: `mpiexec -n 2 python program.py`, or a cluster's own, such as `srun`. It must be "
        "of the MPI that mpi4py loads, or each process takes itself for the only one. A program that is to run in one "
        "process makes its engine without `transport=`."
    ),
    "E0723": Explanation(
        "One thread of each process makes all calls of MPI, beside the thread that started it, so MPI must be started "
        "with MPI_THREAD_MULTIPLE, which mpi4py asks for unless it is told otherwise. Both MPIs of the package index "
        "give it."
    ),
    "E0724": Explanation(
        "Packages of several MPIs put their libraries and `mpiexec` in the same places of an environment, and the last "
        "one installed wins, in part. Uninstall all but one, and install that one again."
    ),
    "E0725": Explanation(
        "Terms from several ranks are added by MPI, which adds integers, f32 and f64, and no halves: accumulate into a "
        "tensor of f32, and let one more task convert what is done. One rank alone has no such limit."
    ),
    "E0726": Explanation(
        "Every rank runs the same program: it submits the same tasks in the same order, and waits, gathers and "
        "deallocates at the same places. The message tells the first call that differs, as each rank made it. What a "
        "program may ask of its rank is where data comes from, not what is submitted."
    ),
    "E0727": Explanation(
        "Another rank left by an exception, ended, or has said nothing for a long time. The message names it, and why "
        "as far as it is known; the other ranks' engines end, too, as they cannot have its results."
    ),
    "E0717": Explanation(
        "Blocks whose transfer failed have no value, tasks that failed are told by `engine.wait()`, and workers at "
        "other memories go on. After an error of a kernel, such as an illegal address, a GPU is lost to its process."
    ),
    "W0701": Explanation(
        "What a task declares is in its memory before it runs. Other blocks that its permissions cover may be asked "
        "for, and the task waits for them; `engine.counters.undeclared` counts them."
    ),
    "E0608": Explanation("Nothing half-written is left: make room, or name a place on another disk."),
    "E0609": Explanation(
        "`texpr tune FILE -D NAME=VALUE` (in Python `texpr.tune(kernel, …)`) measures mappings with these sizes on "
        "this machine and keeps the fastest; `compile(tuned=True)` and `--tuned` take it, and nothing that was "
        "measured on another device or with another version of the compiler. Without them the compiler chooses. "
        "A mapping that is to be used elsewhere is a file: `texpr tune --output FILE`, then `--mapping FILE`."
    ),
}
