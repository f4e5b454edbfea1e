// How kernels end: POST(s, o) is what post-ops make of the result s of element o, POST_V(s, o) that of a vector of results from
// element o on, and POST_ARGS are the arguments that these read. postops.py writes all three where there are post-ops.
// BIAS_ARG is the argument bia, with HAS_BIAS.
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#define POST_V(s, o) (s)
#endif
#ifdef HAS_BIAS
#define BIAS_ARG , __global const T* restrict bia
#else
#define BIAS_ARG
#endif
