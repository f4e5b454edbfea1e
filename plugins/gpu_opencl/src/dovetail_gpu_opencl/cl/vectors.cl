// Vectors of VEC elements of T or ACC at any address, computed as VACC; none with VEC 1.
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#if VEC > 1
#define VACC CAT(ACC, VEC)
// Not vload and vstore: some drivers leave them as function calls, which spill every register.
typedef struct __attribute__((packed)) {
  CAT(T, VEC) v;
} PACKED;
typedef struct __attribute__((packed)) {
  VACC v;
} PACKED_ACC;
#define VLOAD(p) CAT(convert_, VACC)(((__global const PACKED*)(p))->v)
#define VSTORE(x, p) (((__global PACKED*)(p))->v = CAT(CAT(convert_, T), VEC)(x))
#define VLOAD_ACC(p) (((__global const PACKED_ACC*)(p))->v)
#define VSTORE_ACC(x, p) (((__global PACKED_ACC*)(p))->v = (x))
#endif
