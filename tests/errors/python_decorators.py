from texpr.language import *


def first(f):
    return f


@first
@first
def main(A: f32["N"]) -> f32:
    A[0] = 1.0
