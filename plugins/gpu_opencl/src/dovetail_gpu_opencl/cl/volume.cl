// Places in images: without VOLUME these have no depth. A tap is the place (kz, ky, kx) in a window.
#ifdef VOLUME
#define SLICE_OF(pixel) QUOTIENT(pixel, PLANE)
#define IN_SLICE(pixel) REMAINDER(pixel, PLANE)
#define TAP_Z(tap) ((tap) / (KW * KH) * DILATION_Z)
#define TAP_Y(tap) ((tap) / KW % KH * DILATION_Y)
#define FIRST_Z(slice) ((slice) * STRIDE_Z - PAD_Z)
#define INSIDE_Z(z) ((z) >= 0 && (z) < ID)
#else
#define SLICE_OF(pixel) 0
#define IN_SLICE(pixel) (pixel)
#define TAP_Z(tap) 0
#define TAP_Y(tap) ((tap) / KW * DILATION_Y)
#define FIRST_Z(slice) 0
#define INSIDE_Z(z) true
#define S_Z 0
#endif
#define TAP_X(tap) ((tap) % KW * DILATION_X)
#define INSIDE(z, y, x) (INSIDE_Z(z) && (y) >= 0 && (y) < IH && (x) >= 0 && (x) < IW)
