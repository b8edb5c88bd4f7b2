"""The schedule stage: a proved program, and what else its statements could run as.

    ProvedProgram   new t ; par M i { t[i] = … } ; par M j { … t[j] … }
    Schedules       as it is; or one launch of rows, in which t is a local

Input: a `ProvedProgram`. Output: `Schedules`, the program as it is and a few others, each with its moves. Invariant:
every one computes the same, its float additions in the same order, and is as free of races, of undefined reads and of
subscripts out of bounds: each move is legal by its rule, and each schedule passes a check that shares no code with it.
"""

from typing import TYPE_CHECKING

from texpr.grammar.ast import Seq
from texpr.grammar.core import statements
from texpr.grammar.records import dataclass
from texpr.polyhedral.moves import Move
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.schedule.factors import factors
from texpr.polyhedral.schedule.flat_factors import has_flat_factors

if TYPE_CHECKING:
    from texpr.polyhedral.schedule.draft import Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A proved program after some moves; `told` has them in words."""

    proved: ProvedProgram
    moves: tuple[Move, ...] = ()
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedules:
    """A proved program, and what else it could run as: each of the others is checked (`draft.checked`) by whoever
    takes it."""

    proved: ProvedProgram
    others: "tuple[Draft, ...]" = ()


def schedule(proved: ProvedProgram) -> Schedules:
    """The schedules of a program. A single statement without a `seq` inside is one band, where no loop can be moved:
    where arrays have no view either and no factor is worth an array, what makes moves is not even loaded."""
    body = proved.program.kernel.body
    alone = len(body) == 1 and not any(isinstance(stmt, Seq) for stmt in statements(body))
    kernel = proved.program.kernel
    if alone and not has_flat_factors(kernel) and not any(factors(kernel)):
        return Schedules(proved=proved)
    from texpr.polyhedral.schedule.propose import propose

    return Schedules(proved=proved, others=propose(proved))
