// How kernels along rows read and write elements: as T, or with X and Y stored numbers of these types. Those of X belong to a
// quantization, real = (stored - zero) * scale, of which x_numbers has scale and zero; POST makes those of Y
// (kernels/_quantized_rows.py).
#ifdef X
#define SOURCE_ARGS , __global const float* restrict x_numbers
#define READ(p, i) (((ACC)(p)[i] - x_numbers[1]) * x_numbers[0])
#define WRITE(p, i, v) ((p)[i] = (Y)(v))
#if VEC > 1
typedef struct __attribute__((packed)) {
  CAT(X, VEC) v;
} PACKED_X;
typedef struct __attribute__((packed)) {
  CAT(Y, VEC) v;
} PACKED_Y;
#define READ_V(p) ((CAT(convert_, VACC)(((__global const PACKED_X*)(p))->v) - x_numbers[1]) * x_numbers[0])
#define WRITE_V(x, p) (((__global PACKED_Y*)(p))->v = CAT(CAT(convert_, Y), VEC)(x))
#endif
#else
#define X T
#define Y T
#define SOURCE_ARGS
#define READ(p, i) LOAD_T(p, i)
#define WRITE(p, i, v) STORE_T(p, i, v)
#define READ_V(p) VLOAD(p)
#define WRITE_V(x, p) VSTORE(x, p)
#endif
