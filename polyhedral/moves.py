"""Moves: the changes of a program's loops and locals, as data. A schedule is a tuple of them, applied in order.

Loops are named by their indices, statements by their ids, an `if` by the first of these inside it: names are unique in
a core kernel, and a move gives new ones by a fixed rule, so later moves can say them.
"""

from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuse:
    """Two loops that follow one another become one, of the first one's index; the second's iterations run `shift`
    turns later.

    par M i { A(i) } ; par M j { B(j) }     par M i { A(i) ; B(i) }
    """

    first: str
    second: str
    shift: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Two statements that follow one another change places."""

    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribute:
    """A loop becomes two: the second one, of a new index, begins with the statement `before`.

    seq K k { A(k) ; B(k) }     seq K k { A(k) } ; seq K k_1 { B(k_1) }
    """

    loop: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interchange:
    """A loop and the one loop in it change places. Where the inner extent depends on the outer index, the loop that
    comes out runs over all its values, and a condition keeps those that there were.

    seq K k { par N j { A(k, j) } }     par N j { seq K k { A(k, j) } }
    """

    outer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelize:
    """A `seq` of which no iteration needs another becomes a `par`.

    par M i { seq 4 k { Y[i, k] = X[i, k] } }     par M i { par 4 k { Y[i, k] = X[i, k] } }
    """

    loop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A statement beside a loop goes into it: into the first iteration from before it, into the last from behind.

    A ; seq K k { B(k) }     seq K k { if k == 0 { A } ; B(k) }
    """

    statement: str
    loop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Residues:
    """A loop becomes `phases` ones: i = phases * q + r, r from 0 on, each with its own copy of the body, in which
    conditions on r are decided.

    par N i { A(i) }     par ceildiv(N, 2) i_q { A(2 * i_q) } ; par ceildiv(N - 1, 2) i_q_1 { A(2 * i_q_1 + 1) }
    """

    loop: str
    phases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A local of which each iteration of a loop uses elements of its own is declared inside that loop, without the
    dimensions that the loops around it tell.

    new t: f32[M] ; par M i { t[i] = A[i] ; B[i] = t[i] }     par M i { new t: f32 ; t = A[i] ; B[i] = t }
    """

    buffer: str
    loop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expand:
    """The way back: a local is declared before a loop, with a dimension for it and each loop between."""

    buffer: str
    loop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A parameter of one dimension is seen with several, the digits of its flat subscripts.

    C[i * N + j] = …     C[i, j] = …, the same element
    """

    buffer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Precompute:
    """A factor of what a statement adds, its `part` (first, second, or its whole value), becomes an array, of a type
    that holds every value of it, which a band before makes once for all iterations that use it.

    Y[m, n] += X[m, k] * bf16(W[k, n])     par K k, N n { W_factor[k, n] = bf16(W[k, n]) } ; … X[m, k] * W_factor[k, n]
    """

    statement: str
    part: str
    dtype: str


Move = Fuse | Swap | Distribute | Interchange | Parallelize | Sink | Residues | Contract | Expand | View | Precompute
