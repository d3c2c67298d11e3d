"""Exact Euclidean distances to a set of voxels, on the device: a loss or a metric needs them at each step."""

import torch

# Shape legend: B batch, Z Y X axes of a volume.


def signed_distance(mask_BZYX: torch.Tensor) -> torch.Tensor:
    """Compute each voxel's distance to the nearest voxel of the mask, minus that to the nearest one outside it.

    So it is positive outside and negative inside, (B, Z, Y, X), in voxels; the same as two calls of
    `scipy.ndimage.distance_transform_edt`. In a sample whose mask is empty or full it has no meaning.
    """
    inside = mask_BZYX.bool()
    return distance_to(inside) - distance_to(~inside)


def distance_to(mask_BZYX: torch.Tensor, *, reach: int | None = None) -> torch.Tensor:
    """Compute each voxel's Euclidean distance to the nearest voxel of the mask, (B, Z, Y, X).

    The squared distance is separable (Saito and Toriwaki 1994, Pattern Recognition 27(11)): along X by counting, then
    along Y and Z by the minimum over the voxels of the line, one at a time, so that memory stays that of the volume.

    Args:
        mask_BZYX: booleans.
        reach: distances up to this are exact, and larger ones may be too large. Time is proportional to it; without
            it all distances are exact.
    """
    squared_BZYX = _along_last(mask_BZYX).square()
    for axis in (2, 1):
        squared_BZYX = _minimize(squared_BZYX, axis, reach)
    return squared_BZYX.sqrt()


def _along_last(mask_BZYX: torch.Tensor) -> torch.Tensor:
    """Compute the distance along X; where a line has none, it is longer than any diagonal."""
    size = mask_BZYX.shape[-1]
    far = float(sum(mask_BZYX.shape[1:]))
    x_X = torch.arange(size, device=mask_BZYX.device, dtype=torch.float32)
    before = torch.where(mask_BZYX, x_X, -far).cummax(-1).values
    after = torch.where(mask_BZYX, -x_X, -far - size).flip(-1).cummax(-1).values.flip(-1)
    return torch.minimum(x_X - before, -after - x_X).clamp(max=far)


def _minimize(squared_BZYX: torch.Tensor, axis: int, reach: int | None) -> torch.Tensor:
    """Compute the minimum of squared(at) + (x - at)^2 over the voxels of each line that are within reach of x."""
    size = squared_BZYX.shape[axis]
    shape = [1, 1, 1, 1]
    shape[axis] = size
    x = torch.arange(size, device=squared_BZYX.device, dtype=squared_BZYX.dtype).view(shape)
    nearest_BZYX = squared_BZYX.clone()
    for at in range(size):
        first, last = (0, size) if reach is None else (max(0, at - reach), min(size, at + reach + 1))
        window = nearest_BZYX.narrow(axis, first, last - first)
        candidate = squared_BZYX.narrow(axis, at, 1) + (x.narrow(axis, first, last - first) - at).square()
        torch.minimum(window, candidate, out=window)
    return nearest_BZYX
