import glob, numpy as np, onnx, onnxruntime as ort, dovetail
core=dovetail.Core()
for f in sorted(glob.glob("/tmp/env/bugs/rg_OPENCL/*.onnx")):
    m=onnx.load(f); z=dict(np.load(f[:-4]+"npz"))
    print(f, [(n.op_type,[(a.name,onnx.helper.get_attribute_value(a)) for a in n.attribute]) for n in m.graph.node], {k:(v.dtype,v.shape) for k,v in z.items()},[ (i.name,i.dims) for i in m.graph.initializer])
    for d in ("NUMPY","OPENCL.0","OPENCL.1"):
        try:
            r=core.compile_model(core.read_model(m.SerializeToString(),"onnx"),d)(z)[0]
            if d=="NUMPY": ref=r
            else:
                e=np.abs(r.astype(float)-ref.astype(float)); print(d,r.dtype,e.max(),np.argwhere(e>1e-3)[:3].tolist(), np.abs(ref).max())
        except Exception as x: print(d,type(x),str(x)[:600])
