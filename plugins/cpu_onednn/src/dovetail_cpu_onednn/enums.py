"""Numbers of oneDNN's C API, version 3, as `dnnl_types.h` and `dnnl_common_types.h` name them.

Not as enumerations: to define these takes 0.4 ms.
"""

__all__ = ["Alg", "Arg", "Flag"]


class Arg:
    """Execution arguments: which memory of a primitive one is."""

    SRC = 1
    SRC_1 = 2
    SRC_2 = 3
    DST = 17
    DST_1 = 18
    DST_2 = 19
    WEIGHTS = 33
    WEIGHTS_1 = 34
    WEIGHTS_2 = 35
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    SCRATCHPAD = 80
    MULTIPLE_SRC = 1024
    SCALES = 4096
    ZERO_POINTS = 8192

    @staticmethod
    def post_op(index: int, arg: int) -> int:
        """The argument of post-op number `index`."""
        return 32768 * (index + 1) | arg


class Alg:
    """Algorithm kinds other than those of eltwise and binary, which post-ops name."""

    CONVOLUTION_DIRECT = 0x1
    DECONVOLUTION_DIRECT = 0xA
    LRN_ACROSS_CHANNELS = 0xAFF
    POOLING_MAX = 0x1FF
    POOLING_AVG_INCLUDE_PADDING = 0x2FF
    POOLING_AVG_EXCLUDE_PADDING = 0x3FF
    RESAMPLING_NEAREST = 0x2FFF0
    RESAMPLING_LINEAR = 0x2FFF1
    REDUCTION_MAX = 0x2FFF2
    REDUCTION_MIN = 0x2FFF3
    REDUCTION_SUM = 0x2FFF4
    REDUCTION_MUL = 0x2FFF5
    REDUCTION_MEAN = 0x2FFF6
    SOFTMAX_ACCURATE = 0x30000
    SOFTMAX_LOG = 0x30001


class Flag:
    """Flags of the normalisations."""

    USE_GLOBAL_STATS = 1
    USE_SCALE = 2
    USE_SHIFT = 4
