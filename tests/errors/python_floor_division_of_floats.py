from texpr.language import *


def main(A: f32["N"], n: i32):
    for i in par("N"):
        A[i] = A[i] // 2
        A[i // 2] = f32(n // 2)
