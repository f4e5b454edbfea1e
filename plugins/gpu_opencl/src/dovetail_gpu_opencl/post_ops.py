"""The epilogue: C statements for a chain of post-ops, one generator for all kernels.

A kernel calls `POST(s, o)` on the result `s` for the element `o` of its output before it stores it, and `POST_V(s, o)` on
`VEC` results for the elements `o` to `o + VEC - 1`. The chain is computed in float (double for float64 outputs); the kernel
rounds once, when it stores. Kernel files define both as the identity when no chain is put before them.
"""

import dataclasses
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence

from dovetail.dataclass import dataclass
from dovetail.device import (
    PLAIN,
    Binary,
    DType,
    Eltwise,
    Layout,
    PostOp,
    Prelu,
    Reason,
    Refusal,
    Sum,
    TensorType,
    TypedNode,
    same_bytes,
)
from dovetail.lru import LruCache
from dovetail_gpu_opencl.broadcast import Access, Moved, access_to, broadcasts
from dovetail_gpu_opencl.launch import Argument, Read, Scalar
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import STORED_TYPES, accumulator, literal

__all__ = [
    "SEPARATE",
    "Epilogue",
    "check",
    "epilogue",
    "in_memory_order",
    "in_order",
    "lies_along",
    "own_functions",
    "statement",
    "without_names",
]

# `s` is the value, `V` its C type (float, float8, double ...), `a` and `b` are alpha and beta, numbers in braces are
# written in the precision of V. Comparisons are such that NaN stays NaN and infinities do not meet zeros.
_ELTWISE = {
    "abs": "fabs(s)",
    "ceil": "ceil(s)",
    "clip": "(s < V{a} ? V{a} : s) > V{b} ? V{b} : (s < V{a} ? V{a} : s)",
    "cos": "cos(s)",
    "elu": "s > V{0} ? s : {a} * expm1(s)",
    "erf": "erf(s)",
    "exp": "exp(s)",
    "floor": "floor(s)",
    "gelu_erf": "{0.5} * s * ({1} + erf({0.7071067811865476} * s))",
    # The sigmoid form: where tanh is one unit short of -1, the other is wrong by 3e-8 |s|.
    "gelu_tanh": "s / ({1} + exp({-1.5957691216057308} * (s + {0.044715} * s * s * s)))",
    "hardsigmoid": "{a} * s + {b} < V{0} ? V{0} : ({a} * s + {b} > V{1} ? V{1} : {a} * s + {b})",
    "hardswish": "s * ({a} * s + {b} < V{0} ? V{0} : ({a} * s + {b} > V{1} ? V{1} : {a} * s + {b}))",
    "linear": "{a} * s + {b}",
    "log": "log(s)",
    "logistic": "{1} / ({1} + exp(-s))",
    # s * tanh(log(1 + exp(s))): beyond 20 the quotient is 1.
    "mish": "s / ({1} + {2} / (exp(fmin(s, V{20})) * (exp(fmin(s, V{20})) + {2})))",
    "pow": "{a} * pow(s, V{b})",
    "relu": "s > V{0} ? s : {a} * s",
    "round": "rint(s)",
    "sign": "s > V{0} ? V{1} : (s < V{0} ? V{-1} : s)",
    "sin": "sin(s)",
    "soft_relu": "(fmax({a} * s, V{0}) + log1p(exp(-fabs({a} * s)))) / {a}",
    "sqrt": "sqrt(s)",
    "square": "s * s",
    "swish": "s / ({1} + exp(-{a} * s))",
    "tanh": "tanh(s)",
}
# erf of a float or of a vector. Drivers for CPUs compute their own one element at a time, also in loops. Within 1.3 units in the
# last place: odd polynomial below 0.93, 1 - exp(-t - t * polynomial(t)) above; both fitted by weighted least squares (Lawson). On
# CPUs the power is 2^k times that of a fraction, without what drivers do for numbers beyond -18 to -1.6.
_ERF = """static V NAME(V x) {
  const V s = x * x, a = fabs(x), t = a > (V)(4.0f) ? (V)(4.0f) : a;
  V p = (V)(-0.0005976890679448843f);
  p = p * s + 0.004990979563444853f;
  p = p * s - 0.02676556631922722f;
  p = p * s + 0.11281802505254745f;
  p = p * s - 0.37612494826316833f;
  p = p * s + 0.12837915122509003f;
  V q = (V)(1.188571513921488e-05f);
  q = q * t - 0.000329311762470752f;
  q = q * t + 0.003668734338134527f;
  q = q * t - 0.023817215114831924f;
  q = q * t + 0.10630039125680923f;
  q = q * t + 0.6351132392883301f;
  q = q * t + 0.12865778803825378f;
#ifdef __AVX2__
  const V y = -(q * t + t), n = y * 1.4426950f + 12582912.0f, f = fma(y, (V)(1.4426950f), 12582912.0f - n);
  const V g = f * f, high = (0.00015353333f * f + 0.0013398870f) * g + (0.009618438f * f + 0.055503324f);
  const V e = (high * (g * f) + (0.24022648f * g + (0.6931472f * f + 1.0f))) * as_V((as_I(n) + 127) << 23);
#else
  const V e = exp(-(q * t + t));
#endif
  return a < (V)(0.93f) ? p * x + x : copysign(1.0f - e, x);
}
"""
# PoCL's functions of vectors are wrong below 2^-7, by as much as 2^-6, when another element of the vector is beyond 10^6.
_VECTORS = {
    "cos": "fabs(s) < V{0.0078125} ? {1} - {0.5} * s * s : cos(s)",
    "sin": "fabs(s) < V{0.0078125} ? s * ({1} - {0.16666666666666666} * s * s) : sin(s)",
}
_RELU_WITHOUT_SLOPE = "s <= V{0} ? V{0} : s"  # 0 * -infinity would be NaN
_POWERS = {2.0: "{a} * (s * s)", 3.0: "{a} * (s * s * s)", -1.0: "V{a} / s"}  # pow takes 12 to 16 ns a number on CPUs
_BINARY = {
    "add": "s + O",
    "sub": "s - O",
    "rsub": "O - s",
    "mul": "s * O",
    "div": "s / O",
    "rdiv": "O / s",
    "max": "s > O ? s : (s <= O ? O : s + O)",
    "min": "s < O ? s : (s >= O ? O : s + O)",
}


SEPARATE = "#pragma OPENCL FP_CONTRACT OFF\n"
"""Rounds products before sums take them, as references do: what is quantized later must be equal to the last bit."""
_KEPT = {DType.FLOAT16: "floats_of", DType.BFLOAT16: "floats_of_bfloats"}
"""The functions of halves.cl."""
_TEXTS: LruCache[Hashable, str] = LruCache(512)
"""The sources of chains, which nodes share with themselves in other sizes."""
_EPILOGUES: LruCache[Hashable, tuple[str, tuple[Scalar, ...]]] = LruCache(512)
"""Sources and numbers, which alike layers share."""
_CHAINS: LruCache[int, tuple[tuple[PostOp, ...], tuple[str, ...]]] = LruCache(512)
"""By their ids chains, and the keys made of them."""
_MOST_OPERANDS = 64
"""512 of the 1024 bytes of arguments that a kernel may have on every device of the full profile."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Source to put before a kernel file, and the arguments to append to the kernel's own.

    An operand of halves or bfloat16 as large as the result is `KEPT` where vectors are aligned; `POST_KEPT(s, o, kept)` takes
    its elements as KEPT_FLOATS makes them of their bits.
    """

    source: str = ""
    arguments: tuple[Argument, ...] = ()


def check(node: TypedNode) -> Refusal | None:
    """Why the chain of this node cannot be computed; None when it can."""
    if not node.post_ops:
        return None
    if not node.outputs[0].dtype.is_float:
        return Refusal(Reason.POST_OP, f"the result is {node.outputs[0].dtype}; chains are computed on floating-point results")
    if len(node.operands) > _MOST_OPERANDS:
        return Refusal(Reason.POST_OP, f"the chain has {len(node.operands)} operands; accepted: at most {_MOST_OPERANDS}")
    for operand in node.operands:
        if not operand.dtype.is_float:
            return Refusal(Reason.POST_OP, f"an operand is {operand.dtype}")
        if not broadcasts(operand, node.outputs[0]):
            return Refusal(Reason.POST_OP, f"an operand {operand} does not broadcast to the result {node.outputs[0]}")
    return None


def in_memory_order(node: TypedNode) -> TypedNode:
    """The node with the axes of output 0 and of post-op operands in the order in which output 0 is in memory.

    Operands are in the same layout, or plain and in memory as they would be in that layout: see `lies_along`.
    """
    result = node.outputs[0]
    if result.layout == PLAIN:
        return node
    outputs = (in_order(result, result), *node.outputs[1:])
    return dataclasses.replace(node, outputs=outputs, operands=tuple(in_order(operand, result) for operand in node.operands))


def in_order(operand: TensorType, result: TensorType) -> TensorType:
    """The type of an operand with its axes in the order in which the result is in memory."""
    dims = _aligned(operand, result)
    # The value tells a constant of one element from an operand that has one in these sizes only.
    return TensorType(operand.dtype, tuple(dims[axis] for axis in result.order), operand.value)


def lies_along(operand: TensorType, result: TensorType, layout: Layout) -> bool:
    """Whether an operand that broadcasts to the result is plain in memory as it would be in the layout."""
    plain = TensorType(operand.dtype, _aligned(operand, result))
    return same_bytes(plain, plain.with_layout(layout))


def _aligned(operand: TensorType, result: TensorType) -> tuple[int, ...]:
    return (1,) * (result.rank - operand.rank) + operand.dims[max(0, operand.rank - result.rank) :]


def epilogue(
    node: TypedNode, vec: int = 1, run_axes: int = 1, *, aligned: bool = False, moved: Mapping[int, Moved] | None = None
) -> Epilogue:
    """The epilogue of a node that `check` accepted.

    `vec` is VEC. `run_axes` is the number of trailing axes of the output, taken as one, that the elements of `POST_V` never
    leave; 0 when they may leave any. `aligned` says that they begin at multiples of VEC, and that halves.cl is in the
    program. `moved` are the operands, by their numbers, that are read from where they would be moved from.
    """
    if not node.post_ops:
        return Epilogue()
    result, operands = node.outputs[0], node.operands
    types = tuple([(operand.dtype, operand.dims, operand.value is None) for operand in operands])
    places = {} if moved is None else moved
    key = (without_names(node.node.post_ops), types, result.dtype, result.dims, vec, run_axes, aligned, *places.items())
    found = _EPILOGUES.get(key)
    if found is None:
        sizes = RuntimeSizes("post_n")
        accesses = tuple(
            [
                places[i].access(sizes, i) if i in places else access_to(operand, result, run_axes, sizes, i)
                for i, operand in enumerate(operands)
            ]
        )
        found = _text_for(node, accesses, sizes, vec, aligned=aligned), sizes.arguments
        _EPILOGUES.put(key, found)
    source, numbers = found
    return Epilogue(source, (*[Read(name) for name in node.node.operands], *numbers))


def _text_for(node: TypedNode, accesses: Sequence[Access | None], sizes: RuntimeSizes, vec: int, *, aligned: bool) -> str:
    types = tuple([operand.dtype for operand in node.operands])
    key = (without_names(node.node.post_ops), accesses, types, node.outputs[0].dtype, vec, _as_large(node) if aligned else None)
    source = _TEXTS.get(key)
    if source is None:
        source = _text(node, accesses, sizes, vec, aligned=aligned)
        _TEXTS.put(key, source)
    return source


def without_names(chain: tuple[PostOp, ...]) -> tuple[str, ...]:
    """A key for chains that compute the same of other values, as text, which tells 0 from -0: these are equal."""
    found = _CHAINS.get(id(chain))
    if found is None or found[0] is not chain:
        texts = tuple([repr(p if isinstance(p, Eltwise) else dataclasses.replace(p, operand="")) for p in chain])
        found = chain, texts
        _CHAINS.put(id(chain), found)
    return found[1]


def _text(node: TypedNode, accesses: Sequence[Access | None], sizes: RuntimeSizes, vec: int, *, aligned: bool) -> str:
    acc = accumulator(node.outputs[0].dtype)
    pointers = "".join(f", __global const {STORED_TYPES[operand.dtype]}* po{i}" for i, operand in enumerate(node.operands))
    parameters = pointers + sizes.parameters
    passed = "".join(f", po{i}" for i in range(len(node.operands))) + sizes.passed
    source = f"#define POST_ARGS {parameters}\n#define POST(s, o) post_1(s, o{passed})\n"
    source += own_functions(node.post_ops, acc, 1) + _function("post_1", node, accesses, acc, 1, parameters)
    if vec > 1:
        source += f"#define POST_V(s, o) post_v(s, o{passed})\n"
        source += own_functions(node.post_ops, acc, vec)
        source += _function("post_v", node, accesses, acc, vec, parameters, aligned=aligned)
    kept = _as_large(node) if aligned else -1
    if kept >= 0:
        widened = _KEPT[node.operands[kept].dtype]
        source += f"#define KEPT po{kept}\n#define KEPT_FLOATS(bits) {widened}(bits)\n"
        source += f"#define POST_KEPT(s, o, kept) post_kept(s, o, kept{passed})\n"
        parameters = f", const {acc}{vec} kept{parameters}"
        source += _function("post_kept", node, accesses, acc, vec, parameters, aligned=aligned, kept=kept)
    return source


def _as_large(node: TypedNode) -> int:
    """The first operand of halves or bfloat16 that has the result's shape; -1 without one."""
    result = node.outputs[0]
    found = (i for i, o in enumerate(node.operands) if o.dtype in _KEPT and o.dims == result.dims)
    return next(found, -1)


def own_functions(chain: Sequence[PostOp], acc: str, vec: int) -> str:
    """The functions of values of `vec` elements that statements call and that OpenCL C lacks or is slow at."""
    if acc != "float" or not any(isinstance(p, Eltwise) and p.algorithm in ("erf", "gelu_erf") for p in chain):
        return ""
    kind, integers, name = (f"float{vec}", f"int{vec}", "erf_v") if vec > 1 else ("float", "int", "erf_1")
    own = _ERF.replace("as_V", f"as_{kind}").replace("as_I", f"as_{integers}").replace("NAME", name)
    return re.sub(r"\bV\b", kind, own)


def _function(
    name: str,
    node: TypedNode,
    accesses: Sequence[Access | None],
    acc: str,
    vec: int,
    parameters: str,
    *,
    aligned: bool = False,
    kept: int = -1,
) -> str:
    vector = acc if vec == 1 else f"{acc}{vec}"
    types = [STORED_TYPES[operand.dtype] for operand in node.operands]
    texts = [a.load(f"po{i}", types[i], acc, vec, aligned=aligned) for i, a in enumerate(accesses) if a is not None]
    loads = iter(["kept" if i == kept else text for i, text in enumerate(texts)])
    lines = [statement(post_op, vector, acc, loads) for post_op in node.post_ops]
    return f"static {vector} {name}({vector} s, int o{parameters}) {{\n{SEPARATE}{''.join(lines)}  return s;\n}}\n"


def statement(post_op: PostOp, vector: str, acc: str, loads: Iterator[str]) -> str:
    """The C statement that applies a post-op to the value `s` of type `vector`; `loads` gives its operand, if it has one."""
    if isinstance(post_op, Eltwise):
        return f"  s = {_eltwise(post_op, vector, acc)};\n"
    operand = f"{vector} q = {next(loads)};"
    return f"  {{ {operand} s = {_with_operand(post_op, vector, acc)}; }}\n"


def _eltwise(post_op: Eltwise, vector: str, acc: str) -> str:
    template = _ELTWISE[post_op.algorithm]
    if post_op.algorithm == "relu" and post_op.alpha == 0:
        template = _RELU_WITHOUT_SLOPE
    elif post_op.algorithm == "pow":
        template = _POWERS.get(post_op.beta, template)
    numbers = {"a": post_op.alpha, "b": post_op.beta}

    def number(match: re.Match[str]) -> str:
        value = literal(numbers[match[2]] if match[2] in numbers else float(match[2]), acc)
        return f"({vector})({value})" if match[1] else value

    if acc == "float":
        is_vector = vector != acc
        template = _VECTORS.get(post_op.algorithm, template) if is_vector else template
        template = template.replace("erf(", "erf_v(" if is_vector else "erf_1(")
    text = re.sub(r"(V?)\{([^}]*)\}", number, template)
    return text if post_op.scale == 1 else f"{literal(post_op.scale, acc)} * ({text})"


def _with_operand(post_op: Binary | Sum | Prelu, vector: str, acc: str) -> str:
    if isinstance(post_op, Binary):
        return _BINARY[post_op.algorithm].replace("O", "q")
    if isinstance(post_op, Prelu):
        return f"s >= ({vector})(0) ? s : q * s"
    addend = "q" if post_op.zero_point == 0 else f"(q - {literal(post_op.zero_point, acc)})"
    return f"s + {addend}" if post_op.scale == 1 else f"s + {literal(post_op.scale, acc)} * {addend}"
