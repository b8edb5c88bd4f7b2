from texpr.language import *


def main(A: f32["N"]):
    def inner(x):
        return x

    class Inner:
        pass

    scale = lambda x: 2 * x
    for i in par("N"):
        A[i] = inner(scale(i))
