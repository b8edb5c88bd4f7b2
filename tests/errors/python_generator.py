from texpr.language import *


def main(A: f32["N"]):
    yield A[0]
    yield from A
