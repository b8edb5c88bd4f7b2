from texpr.language import *


def main(A: f32["N"]):
    for i in par("N"):
        A[i] = None
        A[i] = "text"
        A[i] = f"{i}"
        A[i] = 2j
        A[i] = b"x"
        A[i] = ...
        A[i] = 99999999999999999999999
        A[i] = [1, 2]
        A[i] = ~i
        A[i] = A @ A
