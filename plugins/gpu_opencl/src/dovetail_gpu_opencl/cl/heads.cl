// What the kernels for attention share (attention.cl, attention_rows.cl): dst = softmax(SCALE * q k' + mask) v for each head.
//
// Layout: element d of query i, head h, batch b of q is at b * Q_B + h * Q_H + i * Q_S + d; k, v (heads shared by SHARE query
// heads) and dst likewise. D is the size of keys, DV that of values. MASK_BOOL says that false leaves a key out, otherwise masks
// are added. CAUSAL: query i sees the keys up to i. A row that sees no key is zeros.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define HEADS 1
#define SHARE 1
#define QUERIES 1
#define TOTAL 1
#define D 1
#define DV 1
#define SCALE 1.0f
#define Q_B 0
#define Q_H 0
#define Q_S D
#define K_B 0
#define K_H 0
#define K_S D
#define V_B 0
#define V_H 0
#define V_S DV
#define Y_B 0
#define Y_H 0
#define Y_S DV
#endif
#ifdef HAS_MASK
#define MASK_ARG , __global const MASK_T* restrict mask
#else
#define MASK_ARG
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
