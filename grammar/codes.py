"""The table of diagnostic codes. Codes are stable: a code is never given a second meaning.

E01 syntax, E02 names, types and attributes, E03 proofs, E04 mapping, E05 target and artifact, E06 call, E07 tasks.
Each code has at least one program in `tests/errors/`, and `texpr explain CODE` prints its entry.
"""

from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """What a code means: a title, and a paragraph with the cause and the mend."""

    title: str
    text: str


CODES: dict[str, Code] = {
    "E0101": Code("syntax error", "The text does not follow the grammar at the marked place."),
    "E0102": Code(
        "unclosed bracket", "A bracket is opened here and not closed before a brace, a statement or the end."
    ),
    "E0103": Code("limit exceeded", "The text is longer, deeper or has larger numbers than TExpr reads. Split it."),
    "E0104": Code(
        "forbidden character",
        "Control and bidirectional characters are refused everywhere, also in comments.",
    ),
    "E0105": Code(
        "Python construct outside the language",
        "The decorated function uses Python that has no TExpr meaning.",
    ),
    "E0106": Code("source not available", "TExpr reads the function's source; save it to a file or a notebook cell."),
    "E0201": Code("unknown name", "The name is not an index, a size, a buffer or a function that is visible here."),
    "E0202": Code("name defined twice", "Shadowing is an error, and so is one name for two things."),
    "E0203": Code("wrong number of subscripts", "A view needs one subscript for each dimension of its buffer."),
    "E0204": Code("types do not mix", "The operands have no common type, or a value narrows; write a cast."),
    "E0205": Code("attribute not allowed", "The attribute is unknown, malformed, or has no meaning on this construct."),
    "E0206": Code(
        "not an index expression", "Extents and affine subscripts are built from integers, sizes and indices."
    ),
    "E0207": Code("wrong arguments of a call", "The call's arguments do not fit the function's parameters."),
    "E0208": Code("recursion", "Functions are inlined, so they cannot call themselves."),
    "E0209": Code("not assignable", "The left side cannot be written: an `in` parameter, an index, a size or a `let`."),
    "E0210": Code("module not found", "An import names a file of `std` or of the program's own folder."),
    "E0211": Code("wrong size or type binding", "A size or type given from outside does not fit the kernel."),
    "E0212": Code("misplaced statement", "The statement has no meaning at this place."),
    "E0213": Code(
        "text of asm not allowed", "An `asm` holds instructions: no quotes, directives or preprocessor text."
    ),
    "E0301": Code(
        "race between iterations of a par",
        "Two iterations of one `par` touch one element and at least one of them writes it. Iterations of a `par` are "
        "independent: make the loop a `seq`, write to different elements, or accumulate with one operator.",
    ),
    "E0302": Code("subscript out of bounds", "An iteration reaches an element that the buffer does not have."),
    "E0303": Code("read before write", "An element of a `new` or `out` buffer is read before anything wrote it."),
    "E0304": Code("out buffer not wholly written", "A buffer declared `out` is not written in every element."),
    "E0305": Code("write to an in buffer", "A buffer declared `in` is written."),
    "E0306": Code(
        "flat subscript not provable", "A flat subscript with a free size could not be split into dimensions."
    ),
    "E0307": Code("proof limit exceeded", "The proof took more steps than allowed; bind sizes or simplify subscripts."),
    "E0308": Code("not quasi-affine", "With a free size this expression is not quasi-affine; bind the size."),
    "W0301": Code("inout used one way", "A parameter declared `inout` is only read or only written."),
    "W0302": Code("inexact division in an extent", "The division floors, so the last part of the range is missed."),
    "W0303": Code("long serial sum", "`#ordered` adds more than 4096 terms to one f32, which loses what it adds."),
    "E0401": Code("mapping not possible", "The attributes or sizes leave no legal mapping to this target."),
    "E0402": Code("attribute not supported by this target", "The attribute is understood but not yet mapped."),
    "E0403": Code("memory limit", "A buffer does not fit the memory that it was given."),
    "E0404": Code("move not possible", "A move of the schedule does not fit the program, or breaks a dependence."),
    "E0501": Code("unknown target", "The target is not one that TExpr emits for."),
    "E0502": Code("not emitted for this target", "The construct has a meaning but no emission on this target yet."),
    "E0503": Code("toolchain missing", "What this step needs of the machine was not found, or does not work."),
    "E0504": Code("toolchain failed", "The compiler refused the emitted text; this is a defect of TExpr."),
    "E0505": Code("artifact not loadable", "The artifact is damaged, of another version, or source-only."),
    "E0506": Code("emission limit exceeded", "The emitted text is larger than TExpr writes."),
    "E0601": Code("wrong arguments of a kernel call", "The arrays do not fit the kernel's parameters."),
    "E0602": Code("size not solvable", "A free size follows from no array's shape; pass it by keyword."),
    "E0603": Code("arrays overlap", "Distinct parameters must not share memory."),
    "E0604": Code("checked execution failed", "A run-time check found a race or an access out of bounds."),
    "E0605": Code("device mismatch", "The arrays are on a device that this target does not run on."),
    "E0606": Code("file not usable", "A file could not be read or written, or holds something else."),
    "E0607": Code("wrong option", "An option of a Python function has a type or a value that it does not take."),
    "E0608": Code("no room for a file", "The disk is full, a limit on files is reached, or the device fails."),
    "E0609": Code("no tuned mapping", "Nothing was tuned for this kernel on this device with this compiler."),
    "E0701": Code(
        "tiled space or tensor not possible", "Tiles, named subranges, shape, type or data do not fit together."
    ),
    "E0702": Code("no such block", "An index of tiles, or the name of a subrange, is not one of the tensor's."),
    "E0703": Code("wrong declaration of a task", "What a task declares is no permission or access, or names no block."),
    "E0704": Code(
        "access outside the task's permission", "A task may touch only what its permissions cover, in that way."
    ),
    "E0705": Code("child exceeds its parent", "A nested task may do no more than the task that submitted it."),
    "E0706": Code("buffer used after its release", "A buffer is given back once, and not touched afterwards."),
    "E0707": Code(
        "buffer left without a decision", "What a task modified is committed, added or cancelled, never just left."
    ),
    "E0708": Code("commit not possible", "The buffer, or the array in its place, cannot be committed in this way."),
    "E0709": Code(
        "write to a zero block", "The tensor's rule says that this block is zero; it has no memory to write."
    ),
    "E0710": Code(
        "block has no value", "A task that should have written the block failed, or gave up after it had begun."
    ),
    "E0711": Code("engine not usable", "The engine was shut down, or a task waits for other tasks."),
    "E0712": Code("memory bound too small", "One task needs more memory on its node than the bound allows."),
    "E0713": Code(
        "read before write", "In strict mode, a task with only a write permission reads a block it has not written."
    ),
    "E0714": Code("tasks wait for each other", "Nothing runs and nothing is on its way, and tasks are left."),
    "E0715": Code("task failed", "A task raised an exception; tasks that needed its results were cancelled."),
    "E0716": Code(
        "no worker for a function", "The engine has no worker of a kind for which the function has an entry."
    ),
    "E0721": Code("MPI not installed", "Several processes need mpi4py and an MPI, which come with `texpr[mpi]`."),
    "E0722": Code("no launcher of MPI", "Ranks are processes that `mpiexec` starts; this one was started alone."),
    "E0723": Code("MPI without threads", "The MPI does not allow all threads of a process to call it."),
    "E0724": Code(
        "two MPIs installed", "Which library is loaded and whose `mpiexec` starts it would be left to chance."
    ),
    "E0725": Code("sum of this type between ranks", "MPI adds integers, f32 and f64, and no other element types."),
    "E0726": Code("ranks differ", "Every rank makes the same calls in the same order; these do not."),
    "E0727": Code("rank lost", "A rank ended, or says nothing any more, and the others cannot go on."),
    "E0717": Code("GPU failed", "The CUDA driver refuses a call of an engine's worker or copier."),
    "W0701": Code(
        "access not declared", "The buffer was fetched while the task waited; declared, it is there beforehand."
    ),
}
