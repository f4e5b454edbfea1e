// The norm of the numbers of a window, of the order POWER: the root ROOT(s) of the sum of POWERED(v), for numbers and vectors.
#if POWER == 1
#define POWERED(v) fabs(v)
#define ROOT(s) (s)
#elif POWER == 2
#define POWERED(v) ((v) * (v))
#define ROOT(s) sqrt(s)
#else
#define POWERED(v) pown(fabs(v), POWER)
#define ROOT(s) pow(s, (ACC)1 / POWER)
#endif
