"""By which form of launches tensor cores of a target take a product of matrices: warpgroups whose tiles are boxes of
tensor maps, or single warps, whose threads bring tiles of rows that begin anywhere."""

from texpr.grammar.types import F64
from texpr.polyhedral.map.matrix_product import MatrixProduct, matrix_product, product_of_any_rows
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.mapped.atoms import SM_90A


def by_boxes(problem: Problem, product: MatrixProduct) -> bool:
    """Whether its tiles are boxes: no warpgroup multiplies f64."""
    return SM_90A.has(problem.target) and product.dtype != F64


def product_of(problem: Problem, region: Region) -> MatrixProduct | None:
    """The product of any rows that tensor cores of the target take."""
    boxed = product_of_any_rows(problem, region) if SM_90A.has(problem.target) else None
    found = boxed or product_of_any_rows(problem, region, boxes=False)
    return found if found is None or found is boxed or not by_boxes(problem, found) else None


def product_as_it_is(problem: Problem, region: Region) -> MatrixProduct | None:
    """The same, of boxes those whose rows lie as tensor maps have them."""
    found = product_of(problem, region)
    return matrix_product(problem, region) if found is not None and by_boxes(problem, found) else found
