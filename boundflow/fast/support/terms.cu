/* Product, modulus and sum on a GPU: a block of elements stays in registers while the symbols stream by.

   Terms by owner of a matrix product (`streaming.py` has the formula), without writing coefficients out:

       for each owner o:   t = 0
           for each symbol w:      c = a . B[j, w] + d[j, w] + sum_q A[:, q, w] b[q, j];      t = t + |c|   (or its like)
           total += max(t - tau, 0)        or        out[64 owners] = max t        or        out[o] = t

   `plain_terms` has no A. It multiplies by matrix units: with x = x1 + x2 in half precision, 22 bits in all,

       a b  =  a1 b1 + a1 b2 + a2 b1,      |error| <= (3 2^-22 + 2^-32) |a| |b|

   where a and b were scaled by powers of two, so that the largest of a line, and of a unit, is just below 2^15. What is
   subnormal in half precision is off by 2^-25, which is 2^-40 of that largest one. `mixed_terms` has A, and few inner
   terms: these are added one by one, in float32, for a few units and lines at once, a thread for each owner.

   `largest` finds the k-th largest of many terms by halving the range of their bits, and adds up the k largest.

   A comparison with NaN must not lose it: `larger` gives NaN, and bits of NaN are larger than those of any number. */

enum { BOX, BALL, CROSS, SIMPLEX };
enum { SUMS, MAXIMA, TERMS };

#define SHIFT 15         /* the exponent of the largest number of a line or of a unit, once it is scaled */
#define FLUSH 64         /* terms that are added up in float32 before float64 takes over */
#define EVERYBODY 0xffffffffu
#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < (count); i++) /* written out, so that arrays are registers */

__device__ __forceinline__ float larger(float x, float y)
{
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}

/* One more coefficient of an owner. */
template <int KIND> __device__ __forceinline__ void take(float c, float &up, float &down)
{
    if (KIND == BOX) up += fabsf(c);
    else if (KIND == BALL) up = fmaf(c, c, up);
    else if (KIND == CROSS) up = larger(up, fabsf(c));
    else {
        up = larger(up, c);
        down = larger(down, -c);
    }
}

/* --- half precision ------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ unsigned half_bits(float x)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

__device__ __forceinline__ float of_half(unsigned bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
}

/* Two neighbours, scaled: their first halves in one word and their second halves in another. */
__device__ __forceinline__ void split(float x, float y, int exponent, unsigned &first, unsigned &second)
{
    x = scalbnf(x, SHIFT - exponent);
    y = scalbnf(y, SHIFT - exponent);
    unsigned x1 = half_bits(x), y1 = half_bits(y);
    first = x1 | y1 << 16;
    second = half_bits(x - of_half(x1)) | half_bits(y - of_half(y1)) << 16;
}

/* Lines (count, inner) and a last 1, which the bias is multiplied by, in the order in which matrix units take them:
   (tiles of 16 lines, steps of 16 inner terms, halves, lanes). A thread for each tile, step and lane. */
extern "C" __global__ void pack_lines(const float *lines, const int *exponents, uint4 *packed, int count, int inner,
                                      int steps, int places)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= places) return;
    int lane = place % 32, step = place / 32 % steps, tile = place / 32 / steps;
    unsigned word[2][4];
    for (int part = 0; part < 4; part++) {
        int n = tile * 16 + lane / 4 + (part & 1) * 8, i = step * 16 + lane % 4 * 2 + (part >> 1) * 8;
        float pair[2];
        for (int e = 0; e < 2; e++)
            pair[e] = n >= count ? 0.0f : i + e < inner ? lines[(long long)n * inner + i + e] : i + e == inner ? 1.0f : 0.0f;
        split(pair[0], pair[1], n < count ? exponents[n] : 0, word[0][part], word[1][part]);
    }
    EACH(half, 2)
        packed[((long long)(tile * steps + step) * 2 + half) * 32 + lane] =
            make_uint4(word[half][0], word[half][1], word[half][2], word[half][3]);
}

/* Weights (units, width, inner, owners) and the bias (units, width, owners) as a last inner term, in the same way:
   (units, tiles of 8 owners, width, steps, lanes), the first halves and then the second ones. A block of threads for some
   tiles of one unit and symbol. */
extern "C" __global__ void pack_weights(const float *weights, const float *bias, const int *exponents, uint4 *packed,
                                        int width, int inner, int owners, int steps)
{
    int lane = threadIdx.x % 32, tile = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32, row = blockIdx.x;
    if (tile >= owners / 8) return;
    int exponent = exponents[row / width], o = tile * 8 + lane / 4;
    for (int step = 0; step < steps; step++) {
        unsigned word[2][2];
        for (int part = 0; part < 2; part++) {
            int i = step * 16 + lane % 4 * 2 + part * 8;
            float pair[2];
            for (int e = 0; e < 2; e++)
                pair[e] = i + e < inner ? weights[((long long)row * inner + i + e) * owners + o]
                        : i + e == inner ? bias[(long long)row * owners + o] : 0.0f;
            split(pair[0], pair[1], exponent, word[0][part], word[1][part]);
        }
        packed[((((long long)(row / width) * (owners / 8) + tile) * width + row % width) * steps + step) * 32 + lane] =
            make_uint4(word[0][0], word[0][1], word[1][0], word[1][1]);
    }
}

/* c += a b, of 16 lines, 16 inner terms and 8 owners. */
__device__ __forceinline__ void multiply(float (&c)[4], uint4 a, unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* Copy 16 bytes into shared memory while others are worked on; wait until all but the last `left` batches are there. */
__device__ __forceinline__ void copy_ahead(uint4 *target, const uint4 *from)
{
    unsigned address = (unsigned)__cvta_generic_to_shared(target);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
}
__device__ __forceinline__ void end_of_batch() { asm volatile("cp.async.commit_group;"); }
template <int LEFT> __device__ __forceinline__ void wait_for_batches() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT)); }

/* A warp has TILES tiles of 16 lines of one unit. A lane has two of the lines of each tile, and two of 8 owners. Lines of
   up to HELD steps stay in registers, and weights come through shared memory, `some_tiles` tiles of owners at a time and
   two batches by turns; with HELD = 0 both are read where they are needed, lines once for TOGETHER symbols. */
template <int KIND, int MODE, int HELD, int TILES>
__global__ void __launch_bounds__(128) plain_terms(const uint4 *lines, const uint4 *weights, const int *line_exponents,
                                                   const int *unit_exponents, const int *own, const float *tau,
                                                   void *out, int count, int units, int width, int owners, int steps,
                                                   int stride, int columns, int some_tiles)
{
    extern __shared__ uint4 batches[];
    const int TOGETHER = HELD ? 1 : 3;
    const int lane = threadIdx.x % 32, unit = blockIdx.y, tiles = owners / 8;
    const int first = (blockIdx.x * 4 + threadIdx.x / 32) * TILES;
    const long long second = (long long)count * units; /* where the second end begins, of thresholds and totals */
    if (HELD) steps = HELD;
    uint4 a[HELD ? HELD : 1][TILES][2];
    if (HELD)
        EACH(s, HELD)
            EACH(m, TILES)
                EACH(half, 2) {
                    int tile = min(first + m, (count - 1) / 16);
                    a[s][m][half] = lines[((long long)(tile * HELD + s) * 2 + half) * 32 + lane];
                }
    long long element[TILES][2];
    float scale[TILES][2], tau_up[TILES][2], tau_down[TILES][2];
    int left_out[TILES][2];
    const float unit_scale = scalbnf(1.0f, unit_exponents[unit] - SHIFT);
    EACH(m, TILES)
        EACH(h, 2) {
            int n = (first + m) * 16 + h * 8 + lane / 4;
            bool here = n < count;
            element[m][h] = here ? (long long)n * units + unit : -1;
            scale[m][h] = here ? scalbnf(1.0f, line_exponents[n] - SHIFT) : 0.0f;
            left_out[m][h] = here ? own[n] : -1;
            tau_up[m][h] = tau_down[m][h] = 0.0f;
            if (MODE == SUMS && here) {
                tau_down[m][h] = tau[element[m][h]];
                tau_up[m][h] = KIND == SIMPLEX ? tau[second + element[m][h]] : 0.0f;
            }
        }
    float some[TILES][2][2] = {}; /* lines, ends: sums or maxima of some owners */
    double total[TILES][2][2] = {};
    int since = 0, turn = 0;
    const int of_tile = width * steps * 32;
    const uint4 *of_unit = weights + (long long)unit * tiles * of_tile;
    const int looked_at = (tiles + stride - 1) / stride;
    auto fetch = [&](int begin, int which) {
        for (int place = threadIdx.x; place < min(some_tiles, looked_at - begin) * of_tile; place += 128)
            copy_ahead(batches + which * some_tiles * of_tile + place,
                       of_unit + (long long)(begin + place / of_tile) * stride * of_tile + place % of_tile);
        end_of_batch();
    };
    if (HELD) fetch(0, 0);
    for (int begin = 0; begin < looked_at; begin += some_tiles, turn ^= 1) {
        if (HELD) {
            if (begin + some_tiles < looked_at) {
                fetch(begin + some_tiles, turn ^ 1);
                wait_for_batches<1>();
            } else wait_for_batches<0>();
            __syncthreads();
        }
        for (int batch = 0; batch < min(some_tiles, looked_at - begin); batch++) {
            const int tile = (begin + batch) * stride;
            float up[TILES][4] = {}, down[TILES][4] = {};
            const uint4 *here = HELD ? batches + (turn * some_tiles + batch) * of_tile + lane
                                     : of_unit + (long long)tile * of_tile + lane;
            #pragma unroll (HELD ? 2 : 1)
            for (int w = 0; w < width; w += TOGETHER) {
                float c[TOGETHER][TILES][4] = {};
                #pragma unroll (HELD ? HELD : 1)
                for (int s = 0; s < (HELD ? HELD : steps); s++) {
                    uint4 some_a[TILES][2];
                    EACH(m, TILES)
                        EACH(half, 2)
                            some_a[m][half] = HELD ? a[HELD ? s : 0][m][half] : __ldg(
                                lines + ((long long)(min(first + m, (count - 1) / 16) * steps + s) * 2 + half) * 32 + lane);
                    EACH(v, TOGETHER) {
                        const uint4 *place = here + ((HELD ? 0 : min(v, width - 1 - w)) * steps + s) * 32;
                        const uint4 b = HELD ? *place : __ldg(place);
                        EACH(m, TILES) multiply(c[v][m], some_a[m][0], b.z, b.w);
                        EACH(m, TILES) multiply(c[v][m], some_a[m][1], b.x, b.y);
                        EACH(m, TILES) multiply(c[v][m], some_a[m][0], b.x, b.y);
                    }
                }
                here += TOGETHER * steps * 32;
                EACH(v, TOGETHER)
                    if (v == 0 || w + v < width)
                        EACH(m, TILES)
                            EACH(e, 4) take<KIND>(c[v][m][e], up[m][e], down[m][e]);
            }
            EACH(m, TILES)
                EACH(e, 4) {
                    int h = e / 2, o = tile * 8 + lane % 4 * 2 + e % 2;
                    float t = KIND == BALL ? sqrtf(up[m][e]) : up[m][e], s = down[m][e];
                    t = o == left_out[m][h] ? 0.0f : t * scale[m][h] * unit_scale;
                    s = o == left_out[m][h] ? 0.0f : s * scale[m][h] * unit_scale;
                    if (MODE == SUMS) {
                        some[m][h][1] += larger(t - (KIND == SIMPLEX ? tau_up : tau_down)[m][h], 0.0f);
                        if (KIND == SIMPLEX) some[m][h][0] += larger(s - tau_down[m][h], 0.0f);
                    } else if (MODE == MAXIMA) {
                        some[m][h][1] = larger(some[m][h][1], t);
                        if (KIND == SIMPLEX) some[m][h][0] = larger(some[m][h][0], s);
                    } else if (element[m][h] >= 0) {
                        float *place = (float *)out + element[m][h] * columns + (begin + batch) * 8 + lane % 4 * 2 + e % 2;
                        place[KIND == SIMPLEX ? second * columns : 0] = t;
                        if (KIND == SIMPLEX) place[0] = s;
                    }
                }
            since += 2;
            if (MODE == SUMS && since >= FLUSH) {
                EACH(m, TILES)
                    EACH(h, 2)
                        _Pragma("unroll") for (int end = KIND == SIMPLEX ? 0 : 1; end < 2; end++) {
                            total[m][h][end] += some[m][h][end];
                            some[m][h][end] = 0.0f;
                        }
                since = 0;
            }
            if (MODE == MAXIMA && tile % 8 == 7)
                EACH(m, TILES)
                    EACH(h, 2)
                        _Pragma("unroll") for (int end = KIND == SIMPLEX ? 0 : 1; end < 2; end++) {
                            float most = some[m][h][end];
                            most = larger(most, __shfl_xor_sync(EVERYBODY, most, 1));
                            most = larger(most, __shfl_xor_sync(EVERYBODY, most, 2));
                            if (lane % 4 == 0 && element[m][h] >= 0)
                                ((float *)out)[((KIND == SIMPLEX ? end * second : 0) + element[m][h]) * columns + tile / 8] = most;
                            some[m][h][end] = 0.0f;
                        }
        }
        if (HELD) __syncthreads(); /* before the next batch is written over this one */
    }
    if (MODE == SUMS)
        EACH(m, TILES)
            EACH(h, 2)
                _Pragma("unroll") for (int end = KIND == SIMPLEX ? 0 : 1; end < 2; end++) {
                    double sum = total[m][h][end] + some[m][h][end];
                    sum += __shfl_xor_sync(EVERYBODY, sum, 1);
                    sum += __shfl_xor_sync(EVERYBODY, sum, 2);
                    if (lane % 4 == 0 && element[m][h] >= 0)
                        ((double *)out)[(KIND == SIMPLEX ? end * second : 0) + element[m][h]] = sum;
                }
}

/* --- lines that are mixed ------------------------------------------------------------------------------------------ */

/* Coefficients (lines, MIXED, symbols) of which every owner has `width`, at `places` (owners, width) or nowhere (-1), in the
   order that `mixed_terms` reads them in: (lines, owners / 32, MIXED, width, 32). A warp for each line, group and q. */
extern "C" __global__ void pack_mixed(const double *coefficients, const int *places, float *packed, int mixed, int width,
                                      int groups, int pitch)
{
    const int lane = threadIdx.x % 32, group = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int q = blockIdx.y % mixed;
    const long long line = blockIdx.y / mixed;
    if (group >= groups) return;
    const double *from = coefficients + (line * mixed + q) * pitch;
    float *target = packed + ((line * groups + group) * mixed + q) * width * 32;
    for (int w = 0; w < width; w++) {
        int place = places[(group * 32 + lane) * width + w];
        target[w * 32 + lane] = place < 0 ? 0.0f : (float)__ldg(from + place);
    }
}

/* A warp has UNITS units and LINES lines, and a lane one of 32 owners. Eight warps of a block: two times as many units, and
   four times as many lines. All numbers of 32 owners stand together: lines (n, owners / 32, MIXED, WIDTH, 32), weights
   (units, owners / 32, WIDTH, INNER, 32), bias (units, owners / 32, WIDTH, 32). */
template <int KIND, int MODE, int INNER, int MIXED, int BIAS, int WIDTH>
__global__ void __launch_bounds__(256, 2) mixed_terms(const float *lines, const float *weights, const float *bias,
                                                      const float *mixed, const float *mix, const int *own,
                                                      const float *tau, void *out, int count, int units, int owners,
                                                      int stride, int columns)
{
    const int UNITS = KIND == SIMPLEX ? 2 : 4, LINES = 8, ENDS = KIND == SIMPLEX ? 2 : 1, PLACES = ENDS * UNITS * LINES;
    const int FEW = 4; /* numbers of a line or a unit that are held in registers */
    __shared__ double totals[8][PLACES];
    __shared__ float thresholds[8][PLACES], some[8][PLACES][32]; /* sums or maxima of some owners */
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int j = (blockIdx.x * 2 + warp % 2) * UNITS, n = (blockIdx.y * 4 + warp / 2) * LINES;
    const long long second = (long long)count * units; /* where the second end begins, of thresholds and totals */
    if (j >= units || n >= count) return;
    /* units and lines beyond the last are the last one again: what is read of them is not written */
    for (int place = lane; place < PLACES; place += 32) {
        int end = place / (UNITS * LINES), u = place / LINES % UNITS, l = place % LINES;
        long long element = (long long)min(n + l, count - 1) * units + min(j + u, units - 1);
        totals[warp][place] = 0.0;
        thresholds[warp][place] = MODE == SUMS ? tau[end * second + element] : 0.0f;
    }
    EACH(place, PLACES) some[warp][place][lane] = 0.0f;
    __syncwarp();
    const float *of_line[LINES], *of_unit[UNITS], *bias_of[UNITS];
    float a[LINES][INNER <= FEW ? INNER : 1], b[UNITS][MIXED <= FEW ? MIXED : 1];
    int left_out[LINES];
    EACH(l, LINES) {
        long long line = min(n + l, count - 1);
        of_line[l] = mixed + line * MIXED * WIDTH * owners;
        left_out[l] = own[line];
        if (INNER <= FEW)
            EACH(i, INNER) a[l][INNER <= FEW ? i : 0] = lines[line * INNER + i];
    }
    EACH(u, UNITS) {
        long long unit = min(j + u, units - 1);
        of_unit[u] = weights + unit * WIDTH * INNER * owners;
        bias_of[u] = bias + unit * WIDTH * owners;
        if (MIXED <= FEW)
            EACH(q, MIXED) b[u][MIXED <= FEW ? q : 0] = mix[q * units + unit];
    }
    int since = 0;
    for (int group = 0; group * 32 * stride < owners; group++) {
        /* eight neighbours are read together; with a stride, groups of eight that are further apart */
        int o = (group * 4 + lane / 8) * stride * 8 + lane % 8;
        const bool inside = o < owners;
        o = inside ? o : 0;
        const int of_block = o / 32 * WIDTH, within = o % 32;
        float up[UNITS][LINES] = {}, down[UNITS][LINES] = {};
        #pragma unroll (WIDTH * (INNER + MIXED) <= 48 ? WIDTH : 1)
        for (int w = 0; w < WIDTH; w++) {
            float c[UNITS][LINES];
            EACH(u, UNITS) {
                float d = BIAS ? __ldg(bias_of[u] + (of_block + w) * 32 + within) : 0.0f;
                EACH(l, LINES) c[u][l] = d;
            }
            #pragma unroll (INNER <= FEW ? INNER : 1)
            for (int i = 0; i < INNER; i++)
                EACH(u, UNITS) {
                    float x = __ldg(of_unit[u] + ((of_block + w) * INNER + i) * 32 + within);
                    EACH(l, LINES)
                        c[u][l] = fmaf(INNER <= FEW ? a[l][INNER <= FEW ? i : 0]
                                                    : __ldg(lines + (long long)min(n + l, count - 1) * INNER + i), x, c[u][l]);
                }
            #pragma unroll (MIXED <= FEW ? MIXED : 1)
            for (int q = 0; q < MIXED; q++)
                EACH(l, LINES) {
                    float x = __ldg(of_line[l] + (of_block * MIXED + q * WIDTH + w) * 32 + within);
                    EACH(u, UNITS)
                        c[u][l] = fmaf(MIXED <= FEW ? b[u][MIXED <= FEW ? q : 0]
                                                    : __ldg(mix + q * units + min(j + u, units - 1)), x, c[u][l]);
                }
            EACH(u, UNITS)
                EACH(l, LINES) take<KIND>(c[u][l], up[u][l], down[u][l]);
        }
        EACH(end, ENDS)
            EACH(u, UNITS)
                EACH(l, LINES) {
                    const int place = (end * UNITS + u) * LINES + l;
                    float t = ENDS == 2 && end == 0 ? down[u][l] : up[u][l];
                    if (KIND == BALL) t = sqrtf(t);
                    if (o == left_out[l] || !inside) t = 0.0f;
                    if (MODE == SUMS) some[warp][place][lane] += larger(t - thresholds[warp][place], 0.0f);
                    else if (MODE == MAXIMA) some[warp][place][lane] = larger(some[warp][place][lane], t);
                    else if (j + u < units && n + l < count && group * 32 + lane < columns)
                        ((float *)out)[(end * second + (long long)(n + l) * units + j + u) * columns + group * 32 + lane] = t;
                }
        since++;
        const bool last = (group + 1) * 32 * stride >= owners;
        if ((MODE == SUMS && (since == FLUSH || last)) || (MODE == MAXIMA && since == 2)) {
            EACH(place, PLACES) {
                const int end = place / (UNITS * LINES), u = place / LINES % UNITS, l = place % LINES;
                if (MODE == SUMS) {
                    double sum = some[warp][place][lane];
                    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(EVERYBODY, sum, step);
                    if (lane == 0) totals[warp][place] += sum;
                } else {
                    float most = some[warp][place][lane];
                    for (int step = 16; step; step /= 2) most = larger(most, __shfl_xor_sync(EVERYBODY, most, step));
                    if (lane == 0 && j + u < units && n + l < count)
                        ((float *)out)[(end * second + (long long)(n + l) * units + j + u) * columns + group / 2] = most;
                }
                some[warp][place][lane] = 0.0f;
            }
            since = 0;
        }
    }
    if (MODE == SUMS) {
        __syncwarp();
        for (int place = lane; place < PLACES; place += 32) {
            const int end = place / (UNITS * LINES), u = place / LINES % UNITS, l = place % LINES;
            if (j + u < units && n + l < count)
                ((double *)out)[end * second + (long long)(n + l) * units + j + u] = totals[warp][place];
        }
    }
}

/* --- the largest terms --------------------------------------------------------------------------------------------- */

template <typename T> struct Bits;
template <> struct Bits<float> {
    typedef unsigned type;
    static __device__ unsigned of(float x) { return __float_as_uint(x) & 0x7fffffffu; }
    static __device__ float back(unsigned x) { return __uint_as_float(x); }
    static const int most = 31;
};
template <> struct Bits<double> {
    typedef unsigned long long type;
    static __device__ type of(double x) { return (type)__double_as_longlong(x) & 0x7fffffffffffffffull; }
    static __device__ double back(type x) { return __longlong_as_double((long long)x); }
    static const int most = 63;
};

/* Of every row of coefficients (rows, pitch): terms of owners, `width` neighbours each from `begin` on, of which the k
   largest are added up, or the k-th largest is found. Terms are not negative. One block of WARPS warps for each row and,
   of a simplex, each end (out is (ends, rows)); a thread holds ITEMS terms. Of numbers that are not negative, bits are in
   the order of the numbers, and those of NaN are above all. */
template <typename T, int KIND, int ITEMS, int SUMMED, int WARPS>
__global__ void __launch_bounds__(32 * WARPS) largest(const T *coefficients, T *out, int pitch, int begin, int owners,
                                               int width, int k)
{
    typedef typename Bits<T>::type bits;
    __shared__ int counts[2][WARPS];
    __shared__ T sums[WARPS];
    const T *row = coefficients + (long long)blockIdx.x * pitch + begin;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    bits key[ITEMS];
    #pragma unroll
    for (int item = 0; item < ITEMS; item++) {
        int o = item * 32 * WARPS + threadIdx.x;
        T t = 0;
        if (o < owners)
            for (int w = 0; w < width; w++) {
                T x = row[(long long)o * width + w];
                if (KIND == SIMPLEX && blockIdx.y == 0) x = -x;
                if (KIND == BOX) t += x < 0 ? -x : x;
                else {
                    T size = KIND == CROSS && x < 0 ? -x : x;
                    t = size > t || size != size ? size : t;
                }
            }
        key[item] = Bits<T>::of(t);
    }
    bits found = 0;
    for (int bit = Bits<T>::most - 1; bit >= 0; bit--) {
        bits trial = found | (bits)1 << bit;
        int count = 0;
        #pragma unroll
        for (int item = 0; item < ITEMS; item++) count += key[item] >= trial;
        count = __reduce_add_sync(EVERYBODY, count);
        if (WARPS > 1) {
            if (lane == 0) counts[bit % 2][warp] = count;
            __syncthreads();
            count = 0;
            for (int other = 0; other < WARPS; other++) count += counts[bit % 2][other];
        }
        if (count >= k) found = trial;
        if (count == k) break; /* no other term is as large as these */
    }
    if (!SUMMED) { /* the smallest of those that are as large */
        __shared__ bits least[WARPS];
        bits mine = ~(bits)0;
        EACH(item, ITEMS)
            if (key[item] >= found && key[item] < mine) mine = key[item];
        for (int step = 16; step; step /= 2) {
            bits other = __shfl_xor_sync(EVERYBODY, mine, step);
            mine = other < mine ? other : mine;
        }
        if (lane == 0) least[warp] = mine;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int other = 1; other < WARPS; other++) mine = least[other] < mine ? least[other] : mine;
            out[blockIdx.x] = Bits<T>::back(mine);
        }
        return;
    }
    T sum = 0;
    int above = 0;
    #pragma unroll
    for (int item = 0; item < ITEMS; item++)
        if (key[item] > found) {
            sum += Bits<T>::back(key[item]);
            above++;
        }
    above = __reduce_add_sync(EVERYBODY, above);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(EVERYBODY, sum, step);
    __syncthreads();
    if (lane == 0) {
        counts[0][warp] = above;
        sums[warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        T total = 0;
        for (int other = 0; other < WARPS; other++) {
            total += sums[other];
            k -= counts[0][other];
        }
        out[(long long)blockIdx.y * gridDim.x + blockIdx.x] = k > 0 ? total + (T)k * Bits<T>::back(found) : total;
    }
}
