// What attention_halves.cl and attention_floats.cl share: their tunables, the keys that a query sees, and the exponents of weights.
#include "heads.cl"
#ifndef SUB_GROUPS
#undef D
#define D 16
#undef DV
#define DV 16
#define SUB_GROUPS 2
#define KEYS 32
#endif
#ifndef K_0
#define K_0 0
#define V_0 0
#endif
#define SUB_GROUP 32
#define ITEMS (SUB_GROUP * SUB_GROUPS)
#define ROWS (16 * SUB_GROUPS)
#define LOG2_E 1.4426950408889634f
// The product `s` of query i and the key `at` as the exponent of its weight, by 2.
#define PLACE(i, at) (((batch * HEADS + head) * QUERIES + (i)) * TOTAL + min(at, TOTAL - 1))
#ifdef CAUSAL
#define SEEN(i, at) ((at) < TOTAL && (at) <= (i))
#else
#define SEEN(i, at) ((at) < TOTAL)
#endif
#define EXPONENT(s, i, at) (SEEN(i, at) ? MASKED(CAPPED((s) * SCALE), MASK_AT(PLACE(i, at))) * LOG2_E : -INFINITY)
