"""The memory-bound problems as PyTorch says them: from the inputs, in the order of the program's, to the output."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


def add_gelu(a: Any, b: Any) -> Any:
    return functional.gelu(a + b)


def swiglu(a: Any, b: Any) -> Any:
    return functional.silu(a) * b


def copy_offset(x: Any) -> Any:
    return x[1:].clone()


def jacobi2d(x: Any, y: Any) -> Any:
    y[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1])
    return y


def row_sum(x: Any) -> Any:
    return x.sum(1)


def softmax(x: Any) -> Any:
    return torch.softmax(x, 1)


def rmsnorm(x: Any, g: Any) -> Any:
    return functional.rms_norm(x, (x.shape[1],), g, 1e-6)


def layernorm(x: Any, g: Any, b: Any) -> Any:
    return functional.layer_norm(x, (x.shape[1],), g, b, 1e-5)


def cross_entropy(x: Any, t: Any) -> Any:
    return functional.cross_entropy(x, t, reduction="none")


def argmax_rows(x: Any) -> Any:
    return x.argmax(1)


def argmax_columns(x: Any) -> Any:
    return x.argmax(0)


def column_sum(x: Any) -> Any:
    return x.sum(0)


def cumsum_rows(x: Any) -> Any:
    return x.cumsum(1)


def cumsum_columns(x: Any) -> Any:
    return x.cumsum(0)


def transpose(x: Any) -> Any:
    return x.t().contiguous()


def permute_3d(x: Any) -> Any:
    return x.permute(2, 1, 0).contiguous()


def nchw_to_nhwc(x: Any) -> Any:
    return x.permute(0, 2, 3, 1).contiguous()


def gather_rows(r: Any, e: Any) -> Any:
    return e.index_select(0, r)


def histogram(k: Any) -> Any:
    return torch.bincount(k, minlength=256)


def dot(x: Any, y: Any) -> Any:
    return (x * y).sum()[None]


def matrix_vector(a: Any, x: Any) -> Any:
    return a @ x


def vector_matrix(x: Any, a: Any) -> Any:
    return x @ a


def mean_squared_error(x: Any, y: Any) -> Any:
    return functional.mse_loss(x, y)[None]


def kl_divergence(x: Any, y: Any) -> Any:
    return functional.kl_div(x, y, reduction="mean")[None]


def huber_loss(x: Any, y: Any) -> Any:
    return functional.huber_loss(x, y)[None]


def batch_norm(x: Any, g: Any, o: Any) -> Any:
    return functional.batch_norm(x, None, None, g, o, training=True)


def group_norm(x: Any, g: Any, o: Any) -> Any:
    return functional.group_norm(x.flatten(1, 2), 8, g.flatten(), o.flatten()).view_as(x)


def instance_norm(x: Any) -> Any:
    return functional.instance_norm(x)


def rmsnorm_channels(x: Any, g: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(1, keepdim=True, dtype=torch.float32) + 1e-6).to(x.dtype) * g[:, None, None]


def softmax_channels(x: Any) -> Any:
    return torch.softmax(x, 1)


def l2_normalise(x: Any) -> Any:
    return functional.normalize(x)


def max_pool_2d(x: Any) -> Any:
    return functional.max_pool2d(x, 3, 2)


def average_pool_2d(x: Any) -> Any:
    return functional.avg_pool2d(x, 2)


def library_dot(x: Any, y: Any) -> Any:
    return torch.dot(x, y)[None]


PEERS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        add_gelu, swiglu, copy_offset, jacobi2d, row_sum, softmax, rmsnorm, layernorm, cross_entropy, argmax_rows,
        argmax_columns, column_sum, cumsum_rows, cumsum_columns, transpose, permute_3d, nchw_to_nhwc, gather_rows,
        histogram, dot, matrix_vector, vector_matrix, mean_squared_error, kl_divergence, huber_loss, batch_norm,
        group_norm, instance_norm, rmsnorm_channels, softmax_channels, l2_normalise, max_pool_2d, average_pool_2d,
    )
}  # fmt: skip
ALSO: dict[str, dict[str, Callable[..., Any]]] = {"dot": {"torch.dot": library_dot}}  # other words for the same
WAITS = ("histogram",)  # asks the GPU for the greatest key, so that no graph holds it
