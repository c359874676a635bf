// The gated delta rule (arXiv 2412.06464) over each sequence, and its backward. qkv[T, 2·G·K + H·V] holds the queries and keys
// of G key heads and the values of H value heads, which share key heads in groups. For each token of a value head, with the
// state S[K,V] of the token before it (0 before the first):
//   q = q/|q|/√K, k = k/|k|, |x| = √(Σx² + 1e-6); α = exp(-exp(a_log)·softplus(a + dt_bias)), β = σ(b)
//   δ = β·(v - α·Sᵀk), S = α·S + k·δᵀ, o = Sᵀq
// The token before the first one of a branch is the last one of the trunk before it. A sequence with a slot continues
// state[slot] where tokens of it came before, and leaves its own there. Overwritten: o, dqkv, da, db; accumulated into: da_log,
// ddt_bias. Arithmetic and states in f32, tokens one by one. A block has one head of one sequence, its state in global memory.
// One launch, and up to three in the backward, which keeps the state of every kDeltaChunk-th token and computes those between again.
#include <algorithm>

#include "cuda/elementwise.cuh"
#include "cuda/recurrence.cuh"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kDeltaThreads = 128;
constexpr int64_t kDeltaChunk = 32;               // tokens between kept states
constexpr int64_t kDeltaBlocks = 256;             // that a backward runs together at most
constexpr int64_t kDeltaRoom = int64_t{1} << 27;  // floats of their workspace, if one block needs no more
constexpr float kDeltaEps = 1e-6f;

struct DeltaShape {
  int64_t tokens, width;
  int key_heads, heads, key_size, value_size, group;

  __device__ int64_t query(int64_t t, int key_head) const { return t * width + key_head * key_size; }
  __device__ int64_t key(int64_t t, int key_head) const { return query(t, key_heads + key_head); }
  __device__ int64_t value(int64_t t, int head) const {
    return t * width + 2 * key_heads * key_size + head * value_size;
  }
};

DeltaShape delta_shape(const char* op, const TensorView& qkv, int64_t heads, int64_t value_size,
                       int64_t key_heads, int64_t key_size) {
  const int64_t group = key_heads > 0 ? heads / key_heads : 0;
  if (key_heads < 1 || heads != key_heads * group || qkv[1] != 2 * key_heads * key_size + heads * value_size)
    throw Error(
        "E_SHAPE",
        format("%s: qkv is %lld wide, expected 2·%lld·%lld + %lld·%lld of as many value heads or a multiple",
               op, static_cast<long long>(qkv[1]), static_cast<long long>(key_heads),
               static_cast<long long>(key_size), static_cast<long long>(heads),
               static_cast<long long>(value_size)));
  return {qkv[0],
          qkv[1],
          static_cast<int>(key_heads),
          static_cast<int>(heads),
          static_cast<int>(key_size),
          static_cast<int>(value_size),
          static_cast<int>(group)};
}

struct DeltaGate {
  float softened, rate, decay, beta;  // softplus(a + dt_bias), exp(a_log), α, β

  __device__ DeltaGate(float a, float b, float a_log, float dt_bias) {
    const float x = a + dt_bias;
    softened = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    rate = expf(a_log);
    decay = expf(-rate * softened);
    beta = 1.0f / (1.0f + expf(-b));
  }
};

/// The parts of a, b, a_log and dt_bias, of which the last two may be stored otherwise.
template <typename T, typename W>
struct DeltaGates {
  const T *a, *b;
  const W *a_log, *dt_bias;

  __device__ DeltaGate of(int64_t t, int heads, int head) const {
    return {to_float(a[t * heads + head]), to_float(b[t * heads + head]), to_float(a_log[head]),
            to_float(dt_bias[head])};
  }
};

/// y = x·factor/|x| by the block, which all of it sees. Returns 1/|x|.
template <typename T>
__device__ float delta_normal(const T* x, float* y, int size, float factor) {
  float squares = 0;
  for (int i = threadIdx.x; i < size; i += kDeltaThreads) squares += to_float(x[i]) * to_float(x[i]);
  const float inverse = 1.0f / sqrtf(block_sum(squares) + kDeltaEps);
  for (int i = threadIdx.x; i < size; i += kDeltaThreads) y[i] = to_float(x[i]) * (inverse * factor);
  __syncthreads();
  return inverse;
}

/// to = from, by the block.
__device__ inline void delta_copy(const float* from, float* to, int n) {
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kDeltaThreads) to[i] = from[i];
  __syncthreads();
}
__device__ inline void delta_zero(float* to, int n) {
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kDeltaThreads) to[i] = 0;
  __syncthreads();
}

/// Follows the states at branches.
__device__ inline void delta_reach(float* state, float* trunk, int n, int32_t branch, int32_t& run) {
  if (branch == run) return;
  if (run == 0) {
    delta_copy(state, trunk, n);
  } else {
    delta_copy(trunk, state, n);
  }
  run = branch;
}

/// Column v of one token: updates the state, gives v - α·Sᵀk and o.
__device__ inline float delta_step(float* state, const DeltaShape& shape, int v, const float* q,
                                   const float* k, const DeltaGate& gate, float value, float& out) {
  float memory = 0;
  for (int r = 0; r < shape.key_size; r++) memory = fmaf(k[r], state[r * shape.value_size + v], memory);
  const float rest = value - gate.decay * memory, delta = gate.beta * rest;
  out = 0;
  for (int r = 0; r < shape.key_size; r++) {
    float& s = state[r * shape.value_size + v];
    s = fmaf(k[r], delta, gate.decay * s);
    out = fmaf(q[r], s, out);
  }
  return rest;
}

// Four blocks a multiprocessor: left to itself, ptxas spills for more.
template <typename T, typename W>
__global__ void __launch_bounds__(kDeltaThreads, 4)
    delta_kernel(const T* qkv, DeltaGates<T, W> gates, DeltaShape shape, Recurrence sequences, float* kept,
                 float* scratch, T* o) {
  extern __shared__ float delta_shared[];
  float *q = delta_shared, *k = q + shape.key_size;
  const int head = static_cast<int>(blockIdx.x) % shape.heads, key_head = head / shape.group;
  const int64_t s = static_cast<int>(blockIdx.x) / shape.heads;
  const int elements = shape.key_size * shape.value_size;
  Recurrence::Place place{};
  if (!sequences.find(s, place) || !sequences.branches_hold(place)) return;
  float* own = scratch + int64_t{blockIdx.x} * elements * (sequences.branch ? 2 : 1);
  float *state = place.slot >= 0 ? kept + (place.slot * shape.heads + head) * elements : own,
        *trunk = own + elements;
  if (place.before == 0) delta_zero(state, elements);
  const float factor = 1.0f / sqrtf(static_cast<float>(shape.key_size));
  int32_t run = 0;
  for (int64_t t = place.begin; t < place.end; t++) {
    delta_reach(state, trunk, elements, sequences.branch_of(t), run);
    delta_normal(qkv + shape.query(t, key_head), q, shape.key_size, factor);
    delta_normal(qkv + shape.key(t, key_head), k, shape.key_size, 1.0f);
    const DeltaGate gate = gates.of(t, shape.heads, head);
    for (int v = threadIdx.x; v < shape.value_size; v += kDeltaThreads) {
      float out;
      delta_step(state, shape, v, q, k, gate, to_float(qkv[shape.value(t, head) + v]), out);
      o[(t * shape.heads + head) * shape.value_size + v] = from_float<T>(out);
    }
    __syncthreads();
  }
}

/// Where a block of the backward works.
struct DeltaRoom {
  float* memory;
  int64_t chunks;
  int64_t kept;  // elements at the beginning of a chunk: the state and, with branches, the trunk's

  __host__ __device__ static int64_t of(int64_t chunks, int64_t kept, int64_t elements, int64_t value_size) {
    return chunks * kept + kDeltaChunk * (elements + value_size) + 4 * elements;
  }
};

/// dq and dk [T,H,K] of the queries and keys as they are multiplied; drate, dsoft [T,H] of a_log and a.
template <typename T, typename W>
__global__ void __launch_bounds__(kDeltaThreads)
    delta_backward_kernel(const T* dout, const T* qkv, DeltaGates<T, W> gates, DeltaShape shape,
                          Recurrence sequences, DeltaRoom room, float* dq, float* dk, float* drate,
                          float* dsoft, T* dqkv, T* da, T* db) {
  extern __shared__ float delta_shared[];
  const int size = shape.key_size, columns = shape.value_size, elements = size * columns;
  float *q = delta_shared, *k = q + size, *delta = k + size, *dmemory = delta + columns,
        *dov = dmemory + columns;
  float* starts = room.memory + blockIdx.x * DeltaRoom::of(room.chunks, room.kept, elements, columns);
  float *states = starts + room.chunks * room.kept, *rests = states + kDeltaChunk * elements;
  float *state = rests + kDeltaChunk * columns, *trunk = state + elements, *dstate = trunk + elements,
        *dtrunk = dstate + elements;
  const float factor = 1.0f / sqrtf(static_cast<float>(size));
  const int tasks = static_cast<int>(sequences.sequences) * shape.heads;
  for (int task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int head = task % shape.heads, s = task / shape.heads, key_head = head / shape.group;
    Recurrence::Place place{};
    if (!sequences.find(s, place) || !sequences.branches_hold(place)) continue;
    const int64_t begin = place.begin, count = place.end - begin;
    const auto prepare = [&](int64_t t) {
      delta_normal(qkv + shape.query(t, key_head), q, size, factor);
      delta_normal(qkv + shape.key(t, key_head), k, size, 1.0f);
    };
    const auto step = [&](int64_t t, float* rest) {
      prepare(t);
      const DeltaGate gate = gates.of(t, shape.heads, head);
      for (int v = threadIdx.x; v < columns; v += kDeltaThreads) {
        float out;
        const float left =
            delta_step(state, shape, v, q, k, gate, to_float(qkv[shape.value(t, head) + v]), out);
        if (rest) rest[v] = left;
      }
      __syncthreads();
    };
    int32_t run = 0;
    delta_zero(state, 2 * elements);
    for (int64_t i = 0; i < count; i++) {
      if (i % kDeltaChunk == 0) delta_copy(state, starts + i / kDeltaChunk * room.kept, room.kept);
      delta_reach(state, trunk, elements, sequences.branch_of(begin + i), run);
      step(begin + i, nullptr);
    }
    delta_zero(dstate, 2 * elements);
    int32_t after = count > 0 ? sequences.branch_of(begin + count - 1) : 0;
    for (int64_t chunk = (count + kDeltaChunk - 1) / kDeltaChunk - 1; chunk >= 0; chunk--) {
      const int64_t from = chunk * kDeltaChunk, to = from + kDeltaChunk < count ? from + kDeltaChunk : count;
      delta_copy(starts + chunk * room.kept, state, room.kept);
      run = from > 0 ? sequences.branch_of(begin + from - 1) : 0;
      for (int64_t i = from; i < to; i++) {
        delta_reach(state, trunk, elements, sequences.branch_of(begin + i), run);
        delta_copy(state, states + (i - from) * elements, elements);
        step(begin + i, rests + (i - from) * columns);
      }
      for (int64_t i = to - 1; i >= from; i--) {
        const int64_t t = begin + i;
        const int32_t branch = sequences.branch_of(t);
        if (branch != after) {
          // To the trunk: a branch went on from its state, as the trunk after it does. From a branch: it ends here.
          float *into = branch == 0 ? dstate : dtrunk, *ended = branch == 0 ? dtrunk : dstate;
          __syncthreads();
          for (int e = threadIdx.x; e < elements; e += kDeltaThreads) into[e] += ended[e], ended[e] = 0;
          __syncthreads();
          after = branch;
        }
        prepare(t);
        const DeltaGate gate = gates.of(t, shape.heads, head);
        const float *before = states + (i - from) * elements, *rest = rests + (i - from) * columns;
        float beta_sum = 0, along = 0;
        for (int v = threadIdx.x; v < columns; v += kDeltaThreads) {
          const float d = to_float(dout[(t * shape.heads + head) * columns + v]);
          float ddelta = 0;
          for (int r = 0; r < size; r++) {
            float& into = dstate[r * columns + v];
            into = fmaf(q[r], d, into);
            ddelta = fmaf(k[r], into, ddelta);
          }
          dov[v] = d;
          delta[v] = gate.beta * rest[v];
          dmemory[v] = -gate.beta * ddelta;
          dqkv[shape.value(t, head) + v] = from_float<T>(gate.beta * ddelta);
          beta_sum = fmaf(ddelta, rest[v], beta_sum);
          along = fmaf(delta[v], d, along);
        }
        beta_sum = block_sum(beta_sum);
        along = block_sum(along);
        float decay_sum = 0;
        for (int r = threadIdx.x; r < size; r += kDeltaThreads) {
          float from_out = 0, from_memory = 0, from_delta = 0;
          for (int v = 0; v < columns; v++) {
            const float old = before[r * columns + v], d = dstate[r * columns + v];
            from_out = fmaf(old, dov[v], from_out);
            from_memory = fmaf(old, dmemory[v], from_memory);
            from_delta = fmaf(d, delta[v], from_delta);
            const float decayed = fmaf(k[r], dmemory[v], d);
            decay_sum = fmaf(old, decayed, decay_sum);
            dstate[r * columns + v] = gate.decay * decayed;
          }
          const int64_t at = (t * shape.heads + head) * size + r;
          dq[at] = gate.decay * from_out + k[r] * along;
          dk[at] = from_delta + gate.decay * from_memory;
        }
        decay_sum = block_sum(decay_sum);
        if (threadIdx.x == 0) {
          const int64_t at = t * shape.heads + head;
          const float dg = decay_sum * gate.decay, x = to_float(gates.a[at]) + to_float(gates.dt_bias[head]);
          drate[at] = -dg * gate.rate * gate.softened;
          dsoft[at] = -dg * gate.rate / (1.0f + expf(-x));
          da[at] = from_float<T>(dsoft[at]);
          db[at] = from_float<T>(beta_sum * gate.beta * (1.0f - gate.beta));
        }
        __syncthreads();
      }
    }
  }
}

/// dx of y = x·factor/|x|, where dy is the sum over the value heads of the group.
template <typename T>
__device__ void delta_normal_backward(const T* x, const float* dy, T* dx, const DeltaShape& shape,
                                      float factor) {
  float squares = 0, along = 0;
  const auto incoming = [&](int i) {
    float sum = 0;
    for (int g = 0; g < shape.group; g++) sum += dy[g * shape.key_size + i];
    return sum;
  };
  for (int i = threadIdx.x; i < shape.key_size; i += kDeltaThreads) {
    squares += to_float(x[i]) * to_float(x[i]);
    along += to_float(x[i]) * incoming(i);
  }
  const float inverse = 1.0f / sqrtf(block_sum(squares) + kDeltaEps);
  along = block_sum(along) * inverse;
  for (int i = threadIdx.x; i < shape.key_size; i += kDeltaThreads)
    dx[i] = from_float<T>((incoming(i) - to_float(x[i]) * inverse * along) * (inverse * factor));
}

template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    delta_normals_kernel(const T* qkv, const float* dq, const float* dk, DeltaShape shape, T* dqkv) {
  const int64_t t = static_cast<int>(blockIdx.x) / shape.key_heads;
  const int key_head = static_cast<int>(blockIdx.x) % shape.key_heads;
  const int64_t at = (t * shape.heads + key_head * shape.group) * shape.key_size;
  const int64_t query = shape.query(t, key_head), key = shape.key(t, key_head);
  delta_normal_backward(qkv + query, dq + at, dqkv + query, shape,
                        1.0f / sqrtf(static_cast<float>(shape.key_size)));
  delta_normal_backward(qkv + key, dk + at, dqkv + key, shape, 1.0f);
}

__global__ void __launch_bounds__(kDeltaThreads)
    delta_heads_kernel(const float* drate, const float* dsoft, DeltaShape shape, float* da_log,
                       float* ddt_bias) {
  const int head = static_cast<int>(blockIdx.x * kDeltaThreads + threadIdx.x);
  if (head >= shape.heads) return;
  float rate = 0, soft = 0;
  for (int64_t t = 0; t < shape.tokens; t++) {
    rate += drate[t * shape.heads + head];
    soft += dsoft[t * shape.heads + head];
  }
  if (da_log) da_log[head] += rate;
  if (ddt_bias) ddt_bias[head] += soft;
}

void gated_delta_rule(Stream& stream, const Args& args) {
  const auto [qkv, a, b, a_log, dt_bias, cu, branches, state, slots, lengths, o] = args.tensors<11>();
  const DeltaShape shape = delta_shape("gated_delta_rule", qkv, a[1], o[2], args.i(0), args.i(1));
  const Recurrence sequences =
      recurrence("gated_delta_rule", stream, qkv[0], {5, 6, 8, 9}, cu, branches, state, slots, lengths);
  const int64_t blocks = sequences.sequences * shape.heads;
  float* scratch =
      stream.scratch.take<float>(blocks * shape.key_size * shape.value_size * (branches ? 2 : 1));
  by_storage(qkv.dtype, [&, &qkv = qkv, &a = a, &b = b, &a_log = a_log, &dt_bias = dt_bias, &state = state,
                         &o = o](auto t) {
    using T = decltype(t);
    by_storage(a_log.dtype, [&](auto w) {
      using W = decltype(w);
      const DeltaGates<T, W> gates{a.as<T>(), b.as<T>(), a_log.as<W>(), dt_bias.as<W>()};
      stream.launch(delta_kernel<T, W>, blocks, kDeltaThreads,
                    2 * shape.key_size * static_cast<int64_t>(sizeof(float)), qkv.as<T>(), gates, shape,
                    sequences, state.as<float>(), scratch, o.as<T>());
    });
  });
}

void gated_delta_rule_backward(Stream& stream, const Args& args) {
  const auto [dout, qkv, a, b, a_log, dt_bias, cu, branches, da_log, ddt_bias, dqkv, da, db] =
      args.tensors<13>();
  const DeltaShape shape = delta_shape("gated_delta_rule_backward", qkv, a[1], dout[2], args.i(0), args.i(1));
  const Recurrence sequences = recurrence("gated_delta_rule_backward", stream, qkv[0], {6, 7}, cu, branches);
  const int64_t elements = int64_t{shape.key_size} * shape.value_size;
  // The host does not know the longest sequence: all tokens may be one.
  const int64_t chunks = (shape.tokens + kDeltaChunk - 1) / kDeltaChunk;
  const int64_t kept = (branches ? 2 : 1) * elements;
  const int64_t each = DeltaRoom::of(chunks, kept, elements, shape.value_size);
  const int64_t blocks = std::min({sequences.sequences * shape.heads, kDeltaBlocks,
                                   std::max<int64_t>(1, kDeltaRoom / std::max<int64_t>(1, each))});
  const DeltaRoom room{stream.scratch.take<float>(blocks * each), chunks, kept};
  float* dq = stream.scratch.take<float>(2 * shape.tokens * shape.heads * shape.key_size);
  float* dk = dq + shape.tokens * shape.heads * shape.key_size;
  float* drate = stream.scratch.take<float>(2 * shape.tokens * shape.heads);
  float* dsoft = drate + shape.tokens * shape.heads;
  by_storage(qkv.dtype, [&, &dout = dout, &qkv = qkv, &a = a, &b = b, &a_log = a_log, &dt_bias = dt_bias,
                         &dqkv = dqkv, &da = da, &db = db](auto t) {
    using T = decltype(t);
    by_storage(a_log.dtype, [&](auto w) {
      using W = decltype(w);
      const DeltaGates<T, W> gates{a.as<T>(), b.as<T>(), a_log.as<W>(), dt_bias.as<W>()};
      stream.launch(delta_backward_kernel<T, W>, blocks, kDeltaThreads,
                    (2 * shape.key_size + 3 * shape.value_size) * static_cast<int64_t>(sizeof(float)),
                    dout.as<T>(), qkv.as<T>(), gates, shape, sequences, room, dq, dk, drate, dsoft,
                    dqkv.as<T>(), da.as<T>(), db.as<T>());
    });
    stream.launch(delta_normals_kernel<T>, shape.tokens * shape.key_heads, kDeltaThreads, 0, qkv.as<T>(), dq,
                  dk, shape, dqkv.as<T>());
  });
  if (!da_log && !ddt_bias) return;
  stream.launch(delta_heads_kernel, (shape.heads + kDeltaThreads - 1) / kDeltaThreads, kDeltaThreads, 0,
                drate, dsoft, shape, da_log.as<float>(), ddt_bias.as<float>());
}

}  // namespace

void register_gated_delta_rule(KernelTable& table) {
  table.set("gated_delta_rule", gated_delta_rule);
  table.set("gated_delta_rule_backward", gated_delta_rule_backward);
}

}  // namespace steptrain::cuda
