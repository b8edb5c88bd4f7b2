"""Texts taken through the stages of the package: lifted, proved, mapped; sizes given by name are bound, others free."""

from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.check.stage import check
from texpr.grammar.text.parser import parse_text
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.program import Program, ProvedProgram
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.target import parse_target

# The threads of a block exchange data in every step of a loop.
PIPE = """kernel pipe(A: f32[M, K, 64], B: f32[M, 64]) {
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


def mapped(text: str, target: str = "cuda:sm_90a", **sizes: int) -> MappedProgram:
    return map_program(proved(text, **sizes), parse_target(target))
