// Joins of many values to one, by JOIN(a, b), which is associative: PLUS, LARGER, or a macro of the kernel.
//
// ACROSS joins the lanes of a vector to acc. COLLECT joins the acc of all items of a work group, in every one of them, over the
// local memory `part` of GROUP elements; nothing with GROUP 1.
#define PLUS(a, b) ((a) + (b))
// NaN wins.
#define LARGER(a, b) ((a) > (b) ? (a) : ((a) <= (b) ? (b) : (a) + (b)))
#define ACROSS(acc, v, JOIN)                                  \
  {                                                           \
    ACC lanes[VEC] __attribute__((aligned(sizeof(VACC))));    \
    *(VACC*)lanes = v;                                        \
    for (int i = 0; i < VEC; ++i) acc = JOIN(acc, lanes[i]);  \
  }
#if GROUP > 1
#define COLLECT(acc, JOIN)                                                  \
  barrier(CLK_LOCAL_MEM_FENCE);                                             \
  part[lane] = acc;                                                         \
  barrier(CLK_LOCAL_MEM_FENCE);                                             \
  for (int half_ = GROUP / 2; half_ > 0; half_ /= 2) {                      \
    if (lane < half_) part[lane] = JOIN(part[lane], part[lane + half_]);    \
    barrier(CLK_LOCAL_MEM_FENCE);                                           \
  }                                                                         \
  acc = part[0];
#else
#define COLLECT(acc, JOIN)
#endif
