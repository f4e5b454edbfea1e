// What the kernels for attention share (attention*.cl): dst = softmax(SCALE * q k' + mask) v for each head.
//
// Layout: element d of query i, head h, batch b of q is at b * Q_B + h * Q_H + i * Q_S + d; k, v (heads shared by SHARE query
// heads) and dst likewise. D is the size of keys, DV that of values; k and v have room for TOTAL keys. With HAS_MASK, the mask of
// query i, key j is at b * M_B + h * M_H + i * M_S + min(j, M_LAST) * M_K; MASK_BOOL says that false leaves a key out, otherwise
// masks are added. A row that sees no key is zeros.
//
// Query i is at position FIRST(b) + i and sees no keys from USED(b) on. With CAUSAL it sees none after its position, with LEFT
// and RIGHT none that are further from it. Without LENGTH_T all keys count, and FIRST is PAST. Else lengths[b] + MORE keys of
// batch b count, and the queries are the last of them; with FILLED what follows a shorter sequence than QUERIES counts, too.
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
// QUERIES, TOTAL, PAST, the steps and M_LAST may be the arguments SIZES.
#ifndef SIZES
#define SIZES
#ifndef PAST
#define PAST 0
#endif
#endif
#ifdef LENGTH_T
#define LENGTHS_ARG , __global const LENGTH_T* restrict lengths
// As int: a count beyond the room is an error or means all of it, so that it need not be exact.
#define COUNT(b) ((int)clamp((long)lengths[b] + MORE, (long)-0x40000000, (long)0x40000000))
#ifdef FILLED
#define FIRST(b) max(COUNT(b) - QUERIES, 0)
#define USED(b) min(FIRST(b) + QUERIES, TOTAL)
#else
#define FIRST(b) (COUNT(b) - QUERIES)
#define USED(b) clamp(COUNT(b), 0, TOTAL)
#endif
#else
#define LENGTHS_ARG
#define FIRST(b) PAST
#define USED(b) TOTAL
#endif
// The keys from BEGIN to END that a query at a position may see, of those used.
#ifdef LEFT
#define BEGIN(at) max(0, (at) - LEFT)
#else
#define BEGIN(at) 0
#endif
#if defined(CAUSAL)
#define END(at, used) clamp((at) + 1, 0, used)
#elif defined(RIGHT)
#define END(at, used) clamp((at) + RIGHT + 1, 0, used)
#else
#define END(at, used) (used)
#endif
// A product of a query and a key through the soft cap, and then with element `o` of the mask.
#ifdef SOFTCAP
#define CAPPED(s) (SOFTCAP * tanh((s) / SOFTCAP))
#else
#define CAPPED(s) (s)
#endif
#ifndef HAS_MASK
#define MASK_ARG
#define MASKED(s, o) (s)
#else
#define MASK_ARG , __global const MASK_T* restrict mask
#ifdef MASK_BOOL
#define MASKED(s, o) (mask[o] ? (s) : -INFINITY)
#else
#define MASKED(s, o) ((s) + (ACC)LOAD_MASK_T(mask, o))
#endif
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
