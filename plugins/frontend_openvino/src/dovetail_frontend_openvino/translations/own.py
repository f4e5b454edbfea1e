"""Operations that are operators of this package: domain `openvino`."""

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Outputs, Table

__all__ = ["TABLE"]


def _gather_tree(call: Call) -> str:
    if len(call.inputs) != 4:
        raise FormatError(f"the layer has {len(call.inputs)} inputs", hint="accepted: 4, the last is the end token")
    return call.own("GatherTree", 1, *call.names)[0]


def _ctc_loss(call: Call) -> str:
    flags = {"preprocess_collapse_repeated": False, "ctc_merge_repeated": True, "unique": False}
    given = {name: int(call.bool_attr(name, default)) for name, default in flags.items()}
    dtype = call.dtype(2)
    whole = [value.name if value.dtype is dtype else call.cast(value.name, dtype) for value in call.inputs[1:]]
    return call.own("CTCLoss", 1, call.name(0), *whole, **given)[0]


def _inverse(call: Call) -> str:
    return call.own("Inverse", 1, call.name(0), adjoint=int(call.bool_attr("adjoint", False)))[0]


def _psroi_pooling(call: Call) -> str:
    return call.own(
        "PSROIPooling",
        1,
        *_alike(call, 2),
        output_dim=call.int_attr("output_dim"),
        group_size=call.int_attr("group_size", 1),
        spatial_scale=call.float_attr("spatial_scale"),
        mode=call.text_attr("mode", "average"),
        spatial_bins_x=call.int_attr("spatial_bins_x", 1),
        spatial_bins_y=call.int_attr("spatial_bins_y", 1),
    )[0]


def _proposal(call: Call) -> Outputs:
    names = ("base_size", "pre_nms_topn", "post_nms_topn", "feat_stride", "min_size")
    flags = {"clip_before_nms": True, "clip_after_nms": False, "normalize": False}
    return call.own(
        "Proposal",
        2,
        *_alike(call, 3),
        nms_thresh=call.float_attr("nms_thresh"),
        ratio=call.floats_attr("ratio"),
        scale=call.floats_attr("scale"),
        box_size_scale=call.float_attr("box_size_scale", 1.0),
        box_coordinate_scale=call.float_attr("box_coordinate_scale", 1.0),
        framework=call.text_attr("framework", ""),
        **{name: call.int_attr(name) for name in names},
        **{name: int(call.bool_attr(name, default)) for name, default in flags.items()},
    )


def _sparse_fill_empty_rows(call: Call) -> Outputs:
    dtype = call.dtype(2)
    shape = call.name(1) if call.value(1).dtype is dtype else call.cast(call.name(1), dtype)
    return call.own("SparseFillEmptyRows", 3, call.name(0), shape, call.name(2), call.name(3))


def _alike(call: Call, count: int) -> tuple[str, ...]:
    """The inputs in the type of the first."""
    dtype: DType = call.dtype(0)
    return tuple(call.name(i) if call.value(i).dtype is dtype else call.cast(call.name(i), dtype) for i in range(count))


TABLE: Table = {
    "CTCLoss": _ctc_loss,
    "GatherTree": _gather_tree,
    "Inverse": _inverse,
    "PSROIPooling": _psroi_pooling,
    "Proposal": _proposal,
    "SparseFillEmptyRows": _sparse_fill_empty_rows,
}
