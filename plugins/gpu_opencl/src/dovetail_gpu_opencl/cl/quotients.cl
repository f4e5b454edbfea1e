// x / d and x % d for 0 <= x < 2^31, where d is the name of an argument that has d_factor and d_shift beside it: see sizes.py.
#define QUOTIENT_(x, d) ((int)(mul_hi((uint)(x) << 1, d##_factor) >> d##_shift))
#define QUOTIENT(x, d) QUOTIENT_(x, d)
#define REMAINDER(x, d) ((x) - QUOTIENT(x, d) * d)
