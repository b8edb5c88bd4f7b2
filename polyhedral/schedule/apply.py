"""A move applied: the program after it, whatever it computes. Whether it computes the same is what `legal` says."""

from typing import assert_never

from texpr.polyhedral.moves import (
    Contract,
    Distribute,
    Expand,
    Fuse,
    Interchange,
    Move,
    Parallelize,
    Precompute,
    Residues,
    Sink,
    Swap,
    View,
)
from texpr.polyhedral.program import Program
from texpr.polyhedral.schedule.fuse import fuse, swap
from texpr.polyhedral.schedule.nests import distribute, interchange, parallelize, sink
from texpr.polyhedral.schedule.origins import Moved
from texpr.polyhedral.schedule.precompute import precompute
from texpr.polyhedral.schedule.residues import residues
from texpr.polyhedral.schedule.storage import contract, expand
from texpr.polyhedral.schedule.tree import tidy
from texpr.polyhedral.schedule.view import view


def moved(program: Program, move: Move) -> Moved:
    """The kernel of a program after a move, and where its instances come from. Raises E0404 where the move does not
    fit: what it names is not there, stands otherwise, or is settled by the author."""
    kernel = program.kernel
    match move:
        case Fuse():
            found = fuse(kernel, move)
        case Swap():
            found = swap(kernel, move)
        case Distribute():
            found = distribute(kernel, move)
        case Interchange():
            found = interchange(kernel, move)
        case Parallelize():
            found = parallelize(kernel, move)
        case Sink():
            found = sink(kernel, move)
        case Residues():
            found = residues(kernel, move)
        case Contract():
            found = contract(kernel, move)
        case Expand():
            found = expand(kernel, move)
        case View():
            found = view(program, move)
        case Precompute():
            found = precompute(kernel, move)
        case _:
            assert_never(move)
    return Moved(kernel=tidy(found.kernel), origins=found.origins)
