"""What an operator means: the `Generic`s of every thread, in loops over what one thread does alone.

S2: copy a[i] = A[k, i] for i < 64      for i < 64 { S2: a[i] = A[k, i] }
"""

from typing import assert_never

from texpr.polyhedral.mapped.operators import Copy, Generic, Operator
from texpr.polyhedral.mapped.tree import Loop, Node


def expand(operator: Operator) -> Node:
    """The operator as loops around a `Generic`; when its effect is seen is not told by them."""
    match operator:
        case Generic():
            return operator
        case Copy():
            node: Node = operator.each
            for index, extent in reversed(operator.over):
                node = Loop(index=index, extent=extent, body=(node,), parallel=True, span=operator.span)
            return node
        case _:
            assert_never(operator)
