// Steps on observed pairs and sampled negatives, as shortlist/solvers/sgd_kernels.py takes them, a warp to a pair.
// Coordinate f of a row is in lane f % 32. Rows are read as they are and changed by atomic additions: some thousand
// pairs are under way at a time, where the CPU has two.

#include <cstdint>

enum { UNIFORM = 0, ADAPTIVE = 1, REJECTION = 2 };
enum { PLAIN = 0, PENALTY = 1, LAMBDA = 2 };
enum { MOST = 16 };  // negatives of a positive

struct Rules {
    int n_pairs, n_items, words;  // words: of a context's bits
    int n_negatives, sampler, weigher, rounds, candidates;
    int cosine, adagrad, hinge;
    float context_rate, item_rate, context_ridge, item_ridge;
    float margin, sharpness, gamma;
    unsigned long long seed;
};

struct Tables {
    const int *order, *contexts, *items;
    const uint32_t *bits;          // contexts x words: what each has had
    const float *context_weights, *item_weights;
    const int *lists;              // coordinates x items, from the largest
    const float *sigma;            // by coordinate
    const float *penalties;        // by items above
    const float *changes, *norms;  // by how many candidates score higher than the two; by length of the history
    const int *lengths;            // of the histories
    float *W, *H, *W_squares, *H_squares;
};

__device__ __forceinline__ float sum(float x) {
    for (int k = 16; k; k >>= 1) x += __shfl_xor_sync(~0u, x, k);
    return x;
}

__device__ __forceinline__ uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

struct Random {
    uint64_t state;
    __device__ double unit() {
        state += 0x9E3779B97F4A7C15ull;
        return (mixed(state) >> 11) * 0x1p-53;
    }
};

template <int N>
struct Row {
    float x[N];
    __device__ void read(const float *rows, int r, int lane) {
#pragma unroll
        for (int k = 0; k < N; k++) x[k] = __ldcg(rows + (size_t)r * (32 * N) + 32 * k + lane);
    }
    __device__ float dot(const Row &other) const {
        float total = 0;
#pragma unroll
        for (int k = 0; k < N; k++) total += x[k] * other.x[k];
        return sum(total);
    }
};

// g: the gradient of the losses; adds the ridge and moves the row.
template <int N>
__device__ void move(float *rows, float *squares, int r, int lane, const Row<N> &at, const float *g, float rate,
                     float ridge, int adagrad) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        size_t place = (size_t)r * (32 * N) + 32 * k + lane;
        float full = g[k] + ridge * at.x[k];
        if (adagrad) {
            float total = atomicAdd(squares + place, full * full) + full * full;
            full /= sqrtf(total) + 1e-8f;
        }
        atomicAdd(rows + place, -rate * full);
    }
}

// g += slope * d(score)/d(row a)
template <int N>
__device__ void add_gradient(float *g, float slope, const Row<N> &a, const Row<N> &b, float dot, float of_a, float of_b,
                             int cosine) {
    float both = slope, back = 0;
    if (cosine) {
        if (of_a <= 0 || of_b <= 0) return;
        both = slope * rsqrtf(of_a * of_b);
        back = both * dot / of_a;
    }
#pragma unroll
    for (int k = 0; k < N; k++) g[k] += both * b.x[k] - back * a.x[k];
}

template <int N>
__global__ void __launch_bounds__(256) steps(Rules rules, Tables tables) {
    const int lane = threadIdx.x & 31;
    const int n_warps = (gridDim.x * blockDim.x) >> 5;
    for (int s = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; s < rules.n_pairs; s += n_warps) {
        const int pair = tables.order[s];
        const int c = tables.contexts[pair], i = tables.items[pair];
        const uint32_t *bits = tables.bits + (size_t)c * rules.words;
        Random random{mixed(rules.seed + 0x9E3779B97F4A7C15ull * (uint64_t)(s + 1))};
        Row<N> w, h;
        w.read(tables.W, c, lane);
        h.read(tables.H, i, lane);
        const float of_w = rules.cosine ? w.dot(w) : 1, of_h = rules.cosine ? h.dot(h) : 1;
        const float dot_i = w.dot(h);
        const float own = rules.cosine ? dot_i * rsqrtf(fmaxf(of_w * of_h, 1e-30f)) : dot_i;

        auto had = [&](int j) { return j == i || (bits[j >> 5] >> (j & 31) & 1); };
        auto uniform = [&]() {
            int j;
            do j = (int)(random.unit() * rules.n_items);
            while (had(j));
            return j;
        };
        auto score = [&](const Row<N> &b) {
            float dot = w.dot(b);
            return rules.cosine ? dot * rsqrtf(fmaxf(of_w * b.dot(b), 1e-30f)) : dot;
        };

        int drawn[MOST];
        float weights[MOST];
        float influence = 0, before = 0, all = 0;
        if (rules.sampler == ADAPTIVE) {
#pragma unroll
            for (int k = 0; k < N; k++) influence += fabsf(w.x[k]) * tables.sigma[32 * k + lane];
            before = influence;
            for (int k = 1; k < 32; k <<= 1) {
                float other = __shfl_up_sync(~0u, before, k);
                if (lane >= k) before += other;
            }
            all = __shfl_sync(~0u, before, 31);
            before -= influence;
        }
        for (int k = 0; k < rules.n_negatives; k++) {
            int j = -1, n = 1;
            if (rules.sampler == UNIFORM) {
                j = uniform();
            } else if (rules.sampler == ADAPTIVE) {
                do {
                    float target = (float)random.unit() * all;
                    unsigned here = __ballot_sync(~0u, before + influence > target);
                    int who = here ? __ffs(here) - 1 : 31, f = 0, positive = 0;
                    if (lane == who) {
                        float total = before;
                        for (int q = 0; q < N; q++) {
                            float part = fabsf(w.x[q]) * tables.sigma[32 * q + lane];
                            if (part > 0) {
                                f = 32 * q + lane;
                                positive = w.x[q] >= 0;
                                total += part;
                                if (total > target) break;
                            }
                        }
                    }
                    f = __shfl_sync(~0u, f, who);
                    positive = __shfl_sync(~0u, positive, who);
                    double u = random.unit();
                    int r = (int)(-rules.gamma * log1p(u * expm1(-(double)rules.n_items / rules.gamma)));
                    r = min(r, rules.n_items - 1);
                    j = tables.lists[(size_t)f * rules.n_items + (positive ? r : rules.n_items - 1 - r)];
                } while (had(j));
            } else {
                for (n = 1; n <= rules.rounds; n++) {
                    int candidate = (int)(random.unit() * (rules.n_items - 1));
                    candidate += candidate >= i;
                    Row<N> b;
                    b.read(tables.H, candidate, lane);
                    if (score(b) > own - rules.margin && !had(candidate)) {
                        j = candidate;
                        break;
                    }
                }
            }
            drawn[k] = j;
            weights[k] = rules.weigher == PENALTY && j >= 0 ? tables.penalties[(rules.n_items - 1) / n] : 1;
        }
        if (rules.weigher == LAMBDA) {
            float scores[MOST];
            int above[MOST], above_own = 0;
            for (int k = 0; k < rules.n_negatives; k++) {
                Row<N> b;
                b.read(tables.H, drawn[k], lane);
                scores[k] = score(b);
                above[k] = 0;
            }
#pragma unroll 4
            for (int q = 0; q < rules.candidates; q++) {
                Row<N> b;
                b.read(tables.H, (int)(random.unit() * rules.n_items), lane);
                float it = score(b);
                above_own += it > own;
                for (int k = 0; k < rules.n_negatives; k++) above[k] += it > scores[k];
            }
            const float norm = tables.norms[tables.lengths[c]];
            for (int k = 0; k < rules.n_negatives; k++)
                weights[k] = tables.changes[above_own * (rules.candidates + 1) + above[k]] / norm;
        }

        const float weight = tables.context_weights[c] * tables.item_weights[i];
        float of_context[N] = {}, slope = 0;
        int touched = 0;
        for (int k = 0; k < rules.n_negatives; k++) {
            const int j = drawn[k];
            if (j < 0) continue;
            touched++;
            Row<N> b;
            b.read(tables.H, j, lane);
            const float of_b = rules.cosine ? b.dot(b) : 1, dot = w.dot(b);
            const float it = rules.cosine ? dot * rsqrtf(fmaxf(of_w * of_b, 1e-30f)) : dot;
            const float difference = rules.sharpness * (own - it);
            const float g = rules.sharpness * weight * weights[k] *
                            (rules.hinge ? (difference < 1 ? -1.f : 0.f) : -1 / (1 + __expf(difference)));
            slope += g;
            add_gradient(of_context, -g, w, b, dot, of_w, of_b, rules.cosine);
            float of_item[N] = {};
            add_gradient(of_item, -g, b, w, dot, of_b, of_w, rules.cosine);
            move(tables.H, tables.H_squares, j, lane, b, of_item, rules.item_rate, rules.item_ridge, rules.adagrad);
        }
        if (!touched) continue;
        add_gradient(of_context, slope, w, h, dot_i, of_w, of_h, rules.cosine);
        float of_item[N] = {};
        add_gradient(of_item, slope, h, w, dot_i, of_h, of_w, rules.cosine);
        move(tables.H, tables.H_squares, i, lane, h, of_item, rules.item_rate, rules.item_ridge * touched, rules.adagrad);
        move(tables.W, tables.W_squares, c, lane, w, of_context, rules.context_rate, rules.context_ridge * touched,
             rules.adagrad);
    }
}

extern "C" int epoch(int dim, Rules rules, Tables tables, int blocks, cudaStream_t stream) {
    if (rules.n_negatives > MOST) return -1;
    switch (dim) {
        case 64: steps<2><<<blocks, 256, 0, stream>>>(rules, tables); break;
        case 128: steps<4><<<blocks, 256, 0, stream>>>(rules, tables); break;
        case 256: steps<8><<<blocks, 256, 0, stream>>>(rules, tables); break;
        case 512: steps<16><<<blocks, 256, 0, stream>>>(rules, tables); break;
        default: return -1;
    }
    return (int)cudaGetLastError();
}
