"""An IR of version 10 as the Model Optimizer wrote it, by hand: a convolution and what is behind it."""

import numpy as np

WEIGHTS = np.random.default_rng(21).standard_normal((2, 1, 3, 3)).astype(np.float32)
SLOPE = np.float32([0.25])
BIN = WEIGHTS.tobytes() + SLOPE.tobytes()


def port(number: int, *dims: int, precision: str = "FP32") -> str:
    """A port."""
    return f'<port id="{number}" precision="{precision}">' + "".join(f"<dim>{d}</dim>" for d in dims) + "</port>"


def const(number: int, name: str, shape: str, offset: int, size: int, *dims: int) -> str:
    """A Const of float32."""
    data = f'<data element_type="f32" offset="{offset}" shape="{shape}" size="{size}"/>'
    return f'<layer id="{number}" name="{name}" type="Const" version="opset1">\n{data}\n<output>{port(0, *dims)}</output></layer>'


XML = f"""<?xml version="1.0" ?>
<net name="by_hand" version="10">
<layers>
<layer id="0" name="image" type="Parameter" version="opset1">
<data element_type="f32" shape="1,1,5,6"/>
<output>{port(0, 1, 1, 5, 6)}</output></layer>
{const(1, "weights", "2,1,3,3", 0, 72, 2, 1, 3, 3)}
<layer id="2" name="conv" type="Convolution" version="opset1">
<data auto_pad="explicit" dilations="1,1" output_padding="0,0" pads_begin="1,1" pads_end="1,1" strides="1,1"/>
<input><port id="0"><dim>1</dim><dim>1</dim><dim>5</dim><dim>6</dim></port><port id="1"/></input>
<output>{port(2, 1, 2, 5, 6)}</output></layer>
{const(3, "slope", "1", 72, 4, 1)}
<layer id="4" name="leaky" type="PReLU" version="opset1">
<input>{port(0, 1, 2, 5, 6)}{port(1, 1)}</input>
<output>{port(2, 1, 2, 5, 6)}</output></layer>
<layer id="5" name="positive" type="Greater" version="opset1">
<input>{port(0, 1, 2, 5, 6)}{port(1, 1)}</input>
<output>{port(2, 1, 2, 5, 6, precision="BOOL")}</output></layer>
<layer id="6" name="either" type="Xor" version="opset1">
<input>{port(0, 1, 2, 5, 6, precision="BOOL")}{port(1, 1, 2, 5, 6, precision="BOOL")}</input>
<output>{port(2, 1, 2, 5, 6, precision="BOOL")}</output></layer>
<layer id="7" name="leaky/sink_port_0" type="Result" version="opset1">
<input>{port(0, 1, 2, 5, 6)}</input></layer>
<layer id="9" name="as_number" type="Convert" version="opset1">
<data destination_type="f32"/>
<input>{port(0, 1, 2, 5, 6, precision="BOOL")}</input>
<output>{port(1, 1, 2, 5, 6)}</output></layer>
<layer id="8" name="either/sink_port_0" type="Result" version="opset1">
<input>{port(0, 1, 2, 5, 6)}</input></layer>
</layers>
<edges>
<edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
<edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
<edge from-layer="2" from-port="2" to-layer="4" to-port="0"/>
<edge from-layer="3" from-port="0" to-layer="4" to-port="1"/>
<edge from-layer="2" from-port="2" to-layer="5" to-port="0"/>
<edge from-layer="3" from-port="0" to-layer="5" to-port="1"/>
<edge from-layer="5" from-port="2" to-layer="6" to-port="0"/>
<edge from-layer="5" from-port="2" to-layer="6" to-port="1"/>
<edge from-layer="4" from-port="2" to-layer="7" to-port="0"/>
<edge from-layer="6" from-port="2" to-layer="9" to-port="0"/>
<edge from-layer="9" from-port="1" to-layer="8" to-port="0"/>
</edges>
<meta_data><MO_version value="2021.4"/><cli_parameters><input_model value="DIR/model.onnx"/></cli_parameters></meta_data>
</net>
"""
