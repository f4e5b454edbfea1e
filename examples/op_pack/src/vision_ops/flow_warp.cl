// dst[n, c, y, x] = src[n, c] at (x + flow[n, 0, y, x], y + flow[n, 1, y, x]), bilinear between pixels.
// Row-major buffers: src and dst [N, C, H, W], flow [N, 2, H, W]. One work item for each element of dst: (W, H, N * C).
// C, H, W: the sizes. EDGE: 1 repeats the pixels of the edge outside the picture, 0 takes zeros there.
#ifndef C
#define C 1
#define H 1
#define W 1
#define EDGE 0
#endif

float pixel(__global const float *plane, int y, int x)
{
    const int inside = y >= 0 && y < H && x >= 0 && x < W;
    const float value = plane[clamp(y, 0, H - 1) * W + clamp(x, 0, W - 1)];
    return EDGE || inside ? value : 0.0f;
}

__kernel void flow_warp(__global const float *src, __global const float *flow, __global float *dst)
{
    const int x = get_global_id(0), y = get_global_id(1), plane = get_global_id(2);
    const size_t place = (size_t)y * W + x;
    flow += (size_t)(plane / C) * 2 * H * W + place;
    src += (size_t)plane * H * W;

    // One pixel outside is as far as any: that keeps the conversion to int defined for huge flows, and for NaN.
    const float sx = fmax(-1.0f, fmin(x + flow[0], (float)W));
    const float sy = fmax(-1.0f, fmin(y + flow[H * W], (float)H));
    const int x0 = (int)floor(sx), y0 = (int)floor(sy);
    const float fx = sx - x0, fy = sy - y0;

    const float above = mix(pixel(src, y0, x0), pixel(src, y0, x0 + 1), fx);
    const float below = mix(pixel(src, y0 + 1, x0), pixel(src, y0 + 1, x0 + 1), fx);
    dst[(size_t)plane * H * W + place] = mix(above, below, fy);
}
