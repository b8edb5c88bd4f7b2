import texpr
from texpr.language import f32, par


@texpr.fn
def scaled(a, x):
    a[0] = x


def main(A: f32["N"], B: f32["N", 2]):
    for i in par("N"):
        scaled(B[i, 0:2], A[i])
