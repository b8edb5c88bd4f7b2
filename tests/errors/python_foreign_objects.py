from texpr.language import *


import math

TABLE = [1, 2, 3]
NAME = "N"


def helper(x):
    return x


def main(A: f32["N"]):
    for i in par("N"):
        A[i] = TABLE[0]
        A[i] = helper(A[i])
        A[i] = math.exp(A[i])
        A[i] = A.shape[0]
        A[i] = NAME
        A[i] = float(A[i])
        A[i] = len(A)
        A[i] = exp
        A[i] = (A[i] + 1.0)(2)
        print(A[i])
        A[i] = math.missing(A[i])
        A[i] = int(math.tau)
