from texpr.language import *


async def main(A: f32["N"]):
    A[0] = 1.0
