from texpr.language import *


def main(A: f32["N"]):
    try:
        A[0] = 1.0
    except ValueError:
        raise
    assert A[0] > 0
    raise ValueError
