"""What convolution and pooling share: geometry as defines."""

from dovetail.spatial import ConvGeometry

__all__ = ["MAX_SPATIAL", "spatial_defines"]

MAX_SPATIAL = 3
_AXES = (("D", "Z"), ("H", "Y"), ("W", "X"))


def spatial_defines(g: ConvGeometry) -> dict[str, int]:
    """Sizes as IW, OW, KW, STRIDE_X, DILATION_X, PAD_X, and so on for H (Y) and D (Z); missing axes have size 1."""
    missing = MAX_SPATIAL - g.rank
    defines: dict[str, int] = {}
    for axis, (size, place) in enumerate(_AXES, -missing):
        if axis < 0:
            values = (1, 1, 1, 1, 1, 0)
        else:
            values = (g.input[axis], g.output[axis], g.kernel[axis], g.strides[axis], g.dilations[axis], g.pads_begin[axis])
        names = (f"I{size}", f"O{size}", f"K{size}", f"STRIDE_{place}", f"DILATION_{place}", f"PAD_{place}")
        defines.update(zip(names, values, strict=True))
    return defines
