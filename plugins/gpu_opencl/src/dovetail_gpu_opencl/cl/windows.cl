// Windows in up to three dimensions: the defaults of the sizes that kernels/_spatial.py defines. Those of images may be the
// arguments SIZES. Missing axes have size 1.
#ifndef KD
#ifndef OUT
#define OUT 1
#endif
#define ID 1
#define IH 1
#define IW 1
#define OD OUT
#define OH OUT
#define OW OUT
#define KD 1
#define KH 1
#define KW 1
#define STRIDE_Z 1
#define STRIDE_Y 1
#define STRIDE_X 1
#define DILATION_Z 1
#define DILATION_Y 1
#define DILATION_X 1
#define PAD_Z 0
#define PAD_Y 0
#define PAD_X 0
#endif
#ifndef SIZES
#define SIZES
#endif
