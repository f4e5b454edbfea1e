// to_image: pixel (x, y, z) of an image = src[(z * height + y) * width + x].  from_image: the other way.
//
// NDRange: (width, height), and the slices in the third dimension of an image array.
//
// HALF: the elements are half, else float. ARRAY: an image2d_array_t, else an image2d_t.
#ifdef HALF
#define T half
#define LOAD(i, p) vload_half(i, p)
#define STORE(v, i, p) vstore_half(v, i, p)
#else
#define T float
#define LOAD(i, p) (p)[i]
#define STORE(v, i, p) (p)[i] = (v)
#endif

#ifdef ARRAY
#define IMAGE image2d_array_t
#define AT (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0)
#else
#define IMAGE image2d_t
#define AT (int2)(get_global_id(0), get_global_id(1))
#endif

#define INDEX ((get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0))

__constant sampler_t pixels = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;

__kernel void to_image(__global const T* src, __write_only IMAGE dst) {
  write_imagef(dst, AT, (float4)(LOAD(INDEX, src), 0, 0, 1));
}

__kernel void from_image(__read_only IMAGE src, __global T* dst) {
  STORE(read_imagef(src, pixels, AT).x, INDEX, dst);
}
