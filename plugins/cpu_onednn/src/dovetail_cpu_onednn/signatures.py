"""The C functions of oneDNN, version 3, as far as this device uses them, without the prefix `dnnl_`: the arguments of each."""

from ctypes import POINTER, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p

__all__ = ["CREATE", "DESTROY", "FUNCTIONS", "KINDS"]

CREATE = {
    "batch_normalization_forward": "ippfu",
    "binary": "ippp",
    "convolution_forward": "iippppDDDD",
    "deconvolution_forward": "iippppDDDD",
    "eltwise_forward": "iippff",
    "gru_forward": "iipppppppu",
    "layer_normalization_forward": "ipppfu",
    "lbr_gru_forward": "iipppppppu",
    "lrn_forward": "iippqfff",
    "lstm_forward": "iipppppppppppu",
    "matmul": "pppp",
    "pooling_forward": "iippDDDDD",
    "prelu_forward": "ippp",
    "reduction": "ippff",
    "resampling_forward": "ii*pp",
    "softmax_forward": "iippi",
    "vanilla_rnn_forward": "iiipppppppuff",
}
"""The functions that describe primitives: the arguments between the engine and the attributes, of the part of the name before
`_primitive_desc_create`. p is a handle, i int, u unsigned, f float, q int64, s size_t, D dims, * a pointer."""

FUNCTIONS = {
    "concat_primitive_desc_create": "*ppii*p",
    "engine_create": "*is",
    "memory_create": "*pp*",
    "memory_desc_clone": "*p",
    "memory_set_data_handle": "p*",
    "memory_desc_create_submemory": "*pDD",
    "memory_desc_create_with_strides": "*iDiD",
    "memory_desc_create_with_tag": "*iDii",
    "memory_desc_equal": "pp",
    "memory_desc_query": "pi*",
    "post_ops_append_binary": "pip",
    "post_ops_append_eltwise": "piff",
    "post_ops_append_prelu": "pi",
    "post_ops_append_sum": "pfii",
    "post_ops_create": "*",
    "post_ops_len": "p",
    "primitive_attr_create": "*",
    "primitive_attr_set_post_ops": "pp",
    "primitive_attr_set_scales_mask": "pii",
    "primitive_attr_set_scratchpad_mode": "pi",
    "primitive_attr_set_zero_points_mask": "pii",
    "primitive_create": "*p",
    "primitive_desc_next_impl": "p",
    "primitive_desc_query": "pii*",
    "reorder_primitive_desc_create": "*ppppp",
    "stream_create": "*pu",
    "stream_wait": "p",
}
"""All others, with all of their arguments."""

DESTROY = ("engine", "memory", "memory_desc", "post_ops", "primitive", "primitive_attr", "primitive_desc", "stream")
"""The kinds of handles, each with a function that destroys it."""

KINDS = {
    "p": c_void_p,
    "i": c_int,
    "u": c_uint,
    "f": c_float,
    "q": c_int64,
    "s": c_size_t,
    "D": POINTER(c_int64),
    "*": c_void_p,
}
"""The types of ctypes for the letters."""
