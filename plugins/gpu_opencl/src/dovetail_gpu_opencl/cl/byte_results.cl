#ifdef DIRECT_1
  // Results of 8 bits straight out of registers. Rows of b are in an order (kernels/_bytes.py) that leaves an item with WIDE
  // neighbours along n. DIRECT_1(s, f, kept, distance) computes one in float, in the low byte, and the distance of the sum
  // times f to a whole number; where that is beyond NEAREST, STORE_SUM computes exactly. With CHANNEL_LINES behind f come two
  // more numbers of the channel, out of slopes and starts.
  const bool stores = n0 + lx + lane % 4 * WIDE < N;
  float by[WIDE] __attribute__((aligned(16)));
#pragma unroll
  for (int e = 0; e < WIDE; e += 4) *(float4*)(by + e) = *(__global const float4*)(factor + column + e);
#ifdef CHANNEL_LINES
  float slope[WIDE] __attribute__((aligned(16))), start_of[WIDE] __attribute__((aligned(16)));
#pragma unroll
  for (int e = 0; e < WIDE; e += 4) {
    *(float4*)(slope + e) = *(__global const float4*)(slopes + column + e);
    *(float4*)(start_of + e) = *(__global const float4*)(starts + column + e);
  }
#define OF_COLUMN(e) by[e], slope[e], start_of[e]
#define OF_CHANNEL(n) factor[n], slopes[n], starts[n]
#else
#define OF_COLUMN(e) by[e]
#define OF_CHANNEL(n) factor[n]
#endif
  __local int* mine = (__local int*)tile + item * WIDE;
#pragma unroll
  for (int i = 0; i < WORK_M / 16; ++i) {
#ifdef KEPT_BYTES
    if (i + 1 < WORK_M / 16) KEEP_BYTES(i + 1);
#endif
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int m = m0 + ly + i * 16 + h * 8 + lane / 4, o = m * N + column;
      if (m >= M || !stores) continue;
      float worst[WIDE / 4], greatest = 0;
      uint words[WIDE / 4] __attribute__((aligned(16)));
#pragma unroll
      for (int e = 0; e < WIDE; e += 4) {
        uint bits[4];
        worst[e / 4] = 0;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          float distance;
          bits[c] = DIRECT_1(acc[i][e / 2 + c / 2][h * 2 + c % 2], OF_COLUMN(e + c), KEPT_FLOAT(i, h, e + c), &distance);
          worst[e / 4] = fmax(worst[e / 4], distance);
        }
        words[e / 4] = packed_bytes(bits[0], bits[1], bits[2], bits[3]);
        greatest = fmax(greatest, worst[e / 4]);
      }
      *(__global WORDS_T*)(dst + o) = *(WORDS_T*)words;
      if (greatest > NEAREST) {
        uint fours = 0;
#pragma unroll
        for (int e = 0; e < WIDE; ++e) {
          mine[e] = acc[i][e / 2][h * 2 + e % 2];
          if (e % 4 == 0 && worst[e / 4] > NEAREST) fours |= 1u << e;
        }
        for (; fours != 0; fours &= fours - 1) {
          const int e = LOWEST(fours);
          uint near = 0;
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            float distance;
            DIRECT_1(mine[e + c], OF_CHANNEL(column + e + c), KEPT_AGAIN(o + e, c), &distance);
            if (distance > NEAREST) near |= 1u << c;
          }
          for (; near != 0; near &= near - 1) {
            const int at = e + LOWEST(near);
            STORE_SUM(o + at, mine[at], z, m, column + at);
          }
        }
      }
    }
  }
#endif
