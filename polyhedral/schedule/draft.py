"""A schedule in the making: moves made one after the other, each legal; whoever takes it has it checked as a whole."""

from collections.abc import Sequence
from dataclasses import field, replace

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.records import dataclass
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.moves import Move, Precompute
from texpr.polyhedral.program import Program, ProvedProgram
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.schedule.apply import moved
from texpr.polyhedral.schedule.computed import check_schedule
from texpr.polyhedral.schedule.legal import Violation, violation
from texpr.polyhedral.schedule.origins import Origins, composed
from texpr.polyhedral.schedule.stage import Scheduled
from texpr.polyhedral.schedule.words import fault, in_words, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A schedule in the making: the program after its moves, and where its instances come from."""

    program: Program
    moves: tuple[Move, ...] = ()
    told: tuple[str, ...] = ()
    origins: Origins = field(default_factory=dict)

    def then(self, move: Move) -> "Draft":
        """The schedule with one more move. Raises E0404 where it does not fit, or is not legal."""
        found = self.tried(move)
        if isinstance(found, Violation):
            raise TExprError([refusal(self.program, move, found)])
        return found

    def tried(self, move: Move) -> "Draft | Violation":
        """The same, or what the move would break. Raises E0404 where it does not fit."""
        step = moved(self.program, move)
        why = violation(self.program, move)
        return why or Draft(
            program=build_program(step.kernel, beside=self.program),
            moves=(*self.moves, move),
            told=(*self.told, in_words(self.program.kernel, move)),
            origins=composed(self.origins, step.origins),
        )

    def proved(self, start: ProvedProgram) -> ProvedProgram:
        """What was proved of the program at the start holds for the one after the moves; where these made statements
        of their own, that is proved again. Raises E03 where it does not hold."""
        if any(isinstance(move, Precompute) for move in self.moves):
            prove(self.program)
        return replace(start, program=self.program)


def replay(proved: ProvedProgram, moves: Sequence[Move]) -> Scheduled:
    """The program after some moves. Raises E0404 for the first that does not fit or breaks a dependence."""
    draft = Draft(program=proved.program)
    for move in moves:
        draft = draft.then(move)
    return checked(proved, draft)


def checked(proved: ProvedProgram, draft: Draft) -> Scheduled:
    """A schedule that its check has passed. Raises E0404 for one that it refuses."""
    found = check_schedule(proved.program, draft.program, draft.origins) if draft.moves else None
    if found is not None:
        raise fault(proved.program, found)
    return Scheduled(proved=draft.proved(proved), moves=draft.moves, told=draft.told)
