"""Rotations: from six numbers (Zhou et al. 2019, arXiv:1812.07035, section 4.2) to quaternions, and to matrices."""

import torch
from torch.nn import functional

# The leading dimensions of all tensors are a batch of any shape.
_TINY = 1e-6


def quaternions_of_6d(values: torch.Tensor) -> torch.Tensor:
    """Turn (..., 6), the matrix's first two columns before Gram-Schmidt, into unit quaternions w, x, y, z: (..., 4)."""
    first = functional.normalize(values[..., :3], dim=-1, eps=_TINY)
    second = values[..., 3:] - (first * values[..., 3:]).sum(-1, keepdim=True) * first
    second = functional.normalize(second, dim=-1, eps=_TINY)
    third = torch.linalg.cross(first, second)
    return quaternions_of_matrices(torch.stack([first, second, third], -1))


def quaternions_of_matrices(matrices: torch.Tensor) -> torch.Tensor:
    """Turn rotation matrices (..., 3, 3) into unit quaternions (..., 4), of one of the two signs.

    Each row of `products` is the quaternion times one of its components, times 4 (Shepperd 1978, doi:10.2514/3.55767b).
    The row with the largest component is used, because the others may vanish.
    """
    a, b, c = matrices[..., 0, 0], matrices[..., 1, 1], matrices[..., 2, 2]
    wx = matrices[..., 2, 1] - matrices[..., 1, 2]
    wy = matrices[..., 0, 2] - matrices[..., 2, 0]
    wz = matrices[..., 1, 0] - matrices[..., 0, 1]
    xy = matrices[..., 1, 0] + matrices[..., 0, 1]
    xz = matrices[..., 0, 2] + matrices[..., 2, 0]
    yz = matrices[..., 2, 1] + matrices[..., 1, 2]
    ww, xx, yy, zz = 1 + a + b + c, 1 + a - b - c, 1 - a + b - c, 1 - a - b + c
    products = torch.stack(
        [torch.stack(row, -1) for row in ([ww, wx, wy, wz], [wx, xx, xy, xz], [wy, xy, yy, yz], [wz, xz, yz, zz])], -2
    )
    best = torch.stack([ww, xx, yy, zz], -1).argmax(-1)
    chosen = functional.one_hot(best, 4).to(products.dtype).unsqueeze(-1)
    return functional.normalize((products * chosen).sum(-2), dim=-1, eps=_TINY)


def matrices_of_quaternions(quaternions: torch.Tensor) -> torch.Tensor:
    """Turn quaternions w, x, y, z (..., 4), of any length but 0, into rotation matrices (..., 3, 3)."""
    w, x, y, z = functional.normalize(quaternions, dim=-1).unbind(-1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
    ]
    return torch.stack(rows, -2)
