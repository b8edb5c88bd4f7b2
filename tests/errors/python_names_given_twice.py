from texpr.language import *


def main(A: f32["N"], N: i32):
    for i in par("N"):
        for i in seq("N"):
            A[i] = 1.0
        t = new(f32)
        t = new(f32)
        A = new(f32[4])
