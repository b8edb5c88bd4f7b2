from texpr.language import *


def main(A: f32["N"]):
    for i in par("N"):
        x, y = A[i], 1.0
        a = b = A[i]
        A.x = 2.0
        z: f32 = 1.0
        A[i] /= 2.0
        del x
        if (w := A[i]) > 0:
            A[i] = w
