"""Texts taken through the stages of the package: lifted, proved, mapped; sizes given by name are bound, others free.
And mapped programs changed by hand: nodes replaced, barriers left out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.check.stage import check
from texpr.grammar.text.parser import parse_text
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Choices
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Node
from texpr.polyhedral.mapped.walks import branches, launches, located, with_branches
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.program import Program, ProvedProgram
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.target import parse_target

# The threads of a block exchange data in every step of a loop.
PIPE = """kernel pipe(A: f32[M, K, 64], B: f32[M, 64]) where K <= 4096 {
    par M i {
        seq K k {
            new t: f32[64]
            par 64 a { t[a] = A[i, k, a] }
            par 64 b { B[i, b] += t[63 - b] }
        }
    }
}"""


def program(text: str, **sizes: int) -> Program:
    (kernel,) = check(parse_text(text))
    return build_program(bind_sizes(kernel, sizes))


def proved(text: str, **sizes: int) -> ProvedProgram:
    return prove(program(text, **sizes))


def mapped(text: str, target: str = "cuda:sm_90a", choices: Choices | None = None, **sizes: int) -> MappedProgram:
    return map_program(proved(text, **sizes), parse_target(target), choices=choices)


def only_launch(program: MappedProgram) -> Launch:
    (launch,) = launches(program.host)
    return launch


def with_launch(program: MappedProgram, launch: Launch) -> MappedProgram:
    """The program with another launch of that name."""

    def nodes(host: tuple[HostNode, ...]) -> tuple[HostNode, ...]:
        found: list[HostNode] = []
        for node in host:
            match node:
                case Launch():
                    found.append(launch if node.name == launch.name else node)
                case HostLoop():
                    found.append(replace(node, body=nodes(node.body)))
                case HostIf():
                    found.append(replace(node, then=nodes(node.then), orelse=nodes(node.orelse)))
        return tuple(found)

    return replace(program, host=nodes(program.host))


def edited(launch: Launch, edit: Callable[[Node], tuple[Node, ...]]) -> Launch:
    """The launch with every node, those inside it first, replaced by what `edit` gives."""

    def nodes(body: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(new for n in body for new in edit(with_branches(n, [nodes(b) for b in branches(n)])))

    return replace(launch, body=nodes(launch.body))


def barriers(launch: Launch) -> list[Barrier]:
    """In text order."""
    return [place.node for place in located(launch.body) if isinstance(place.node, Barrier)]


def without_barrier(launch: Launch, number: int) -> Launch:
    seen = count()
    return edited(launch, lambda node: () if isinstance(node, Barrier) and next(seen) == number else (node,))


def without_barriers(launch: Launch) -> Launch:
    return edited(launch, lambda node: () if isinstance(node, Barrier) else (node,))
