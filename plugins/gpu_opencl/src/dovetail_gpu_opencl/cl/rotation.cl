// Rotation of the pairs of elements of a head (Su et al., 2021): of the first 2 * PAIRS elements the two halves are pairs, or
// with INTERLEAVED neighbours. PAIRS 0 turns nothing.
//
// TURNED(x, d, cosines, sines, a) is element d of the head at x, turned by the angles whose cosines and sines are from a on.
#ifndef PAIRS
#define PAIRS 0
#endif
#ifdef INTERLEAVED
#define PAIR(d) ((d) / 2)
#define PARTNER(d) ((d) ^ 1)
#define IS_REAL(d) (((d) & 1) == 0)
#else
#define PAIR(d) ((d) < PAIRS ? (d) : (d)-PAIRS)
#define PARTNER(d) ((d) < PAIRS ? (d) + PAIRS : (d)-PAIRS)
#define IS_REAL(d) ((d) < PAIRS)
#endif
#if PAIRS > 0
#define TURNED(x, d, cosines, sines, a)                                                            \
  ((d) < 2 * PAIRS ? (ACC)LOAD_T(x, d) * (ACC)LOAD_T(cosines, (a) + PAIR(d)) +                     \
                         (IS_REAL(d) ? -(ACC)LOAD_T(x, PARTNER(d)) : (ACC)LOAD_T(x, PARTNER(d))) * \
                             (ACC)LOAD_T(sines, (a) + PAIR(d))                                     \
                   : (ACC)LOAD_T(x, d))
#else
#define TURNED(x, d, cosines, sines, a) (ACC) LOAD_T(x, d)
#endif
