// The gated delta rule (arXiv 2412.06464) over each sequence, and its backward. qkv[T, 2·G·K + H·V] holds the queries and keys
// of G key heads and the values of H value heads, which share key heads in groups. For each token of a value head, with the
// state S[K,V] of the token before it (0 before the first):
//   q = q/|q|/√K, k = k/|k|, |x| = √(Σx² + 1e-6); α = exp(-exp(a_log)·softplus(a + dt_bias)), β = σ(b)
//   δ = β·(v - α·Sᵀk), S = α·S + k·δᵀ, o = Sᵀq
// The token before the first one of a branch is the last one of the trunk before it. A sequence with a slot continues
// state[slot] where tokens of it came before, and leaves its own there. Overwritten: o, dqkv, da, db; accumulated into: da_log,
// ddt_bias. Arithmetic and states in f32. Tokens are taken one by one, sums over K run from 0 up, so a token's bits depend on
// those before it alone, however they are cut into calls. The backward keeps the state of every kDeltaChunk-th token and
// computes those between again.
#include <algorithm>
#include <cmath>

#include "cpu/norm.h"
#include "cpu/recurrence.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int kDeltaVectors = 4;  // of a block of columns of the state
constexpr int64_t kDeltaColumns = kDeltaVectors * kLanes;
constexpr int64_t kDeltaChunk = 32;  // tokens between kept states
constexpr float kDeltaEps = 1e-6f;

struct DeltaShape {
  int64_t tokens, key_heads, heads, key_size, value_size, group, width, blocks;

  DeltaShape(const char* op, const TensorView& qkv, int64_t heads, int64_t value_size, int64_t key_heads,
             int64_t key_size)
      : tokens(qkv[0]),
        key_heads(key_heads),
        heads(heads),
        key_size(key_size),
        value_size(value_size),
        group(key_heads > 0 ? heads / key_heads : 0),
        width(qkv[1]),
        blocks((value_size + kDeltaColumns - 1) / kDeltaColumns) {
    if (key_heads < 1 || heads != key_heads * group || width != 2 * key_heads * key_size + heads * value_size)
      throw Error(
          "E_SHAPE",
          format(
              "%s: qkv is %lld wide, expected 2·%lld·%lld + %lld·%lld of as many value heads or a multiple",
              op, static_cast<long long>(width), static_cast<long long>(key_heads),
              static_cast<long long>(key_size), static_cast<long long>(heads),
              static_cast<long long>(value_size)));
  }
  int64_t query(int64_t t, int64_t key_head) const { return t * width + key_head * key_size; }
  int64_t key(int64_t t, int64_t key_head) const { return query(t, key_heads + key_head); }
  int64_t value(int64_t t, int64_t head) const {
    return t * width + 2 * key_heads * key_size + head * value_size;
  }
};

/// y = x·factor/|x|. Returns 1/|x|.
template <typename T>
float delta_normal(const T* x, float* y, int64_t size, float factor) {
  const float squares = row_sum(size, [&](int64_t i, int n) {
    const vf a = load_at(x, i, n);
    return a * a;
  });
  const float inverse = 1.0f / std::sqrt(squares + kDeltaEps);
  const vf scale = set1(inverse * factor);
  by_vector(size, [&](int64_t i, int n) { store_at(y, i, load_at(x, i, n) * scale, n); });
  return inverse;
}

struct DeltaGate {
  float softened, rate, decay, beta;  // softplus(a + dt_bias), exp(a_log), α, β

  DeltaGate(float a, float b, float a_log, float dt_bias) {
    const float x = a + dt_bias;
    softened = std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
    rate = std::exp(a_log);
    decay = std::exp(-rate * softened);
    beta = 1.0f / (1.0f + std::exp(-b));
  }
};

/// Queries, keys and gates of the tokens of one head that are ready to use: q and k [n,K], α and β [n].
struct DeltaTokens {
  float *q, *k, *decay, *beta, *query_scale, *key_scale;

  static int64_t room(int64_t tokens, int64_t size) { return tokens * (2 * size + 4); }
  DeltaTokens(float* memory, int64_t tokens, int64_t size)
      : q(memory),
        k(q + tokens * size),
        decay(k + tokens * size),
        beta(decay + tokens),
        query_scale(beta + tokens),
        key_scale(query_scale + tokens) {}
};

float delta_read(const TensorView& x, int64_t i) {
  return x.dtype == DType::f32 ? x.as<float>()[i] : to_float(x.as<bf16>()[i]);
}

/// A block of columns as kDeltaVectors vectors with zeros past `count`.
template <typename T>
inline void delta_load(const T* p, int64_t count, vf (&x)[kDeltaVectors]) {
  for (int i = 0; i < kDeltaVectors; i++) {
    const int64_t left = count - i * kLanes;
    x[i] = left >= kLanes ? load(p + i * kLanes)
           : left > 0     ? load(p + i * kLanes, static_cast<int>(left))
                          : zero();
  }
}
template <typename T>
inline void delta_store(T* p, int64_t count, const vf (&x)[kDeltaVectors]) {
  for (int i = 0; i < kDeltaVectors; i++) {
    const int64_t left = count - i * kLanes;
    if (left >= kLanes) {
      store(p + i * kLanes, x[i]);
    } else if (left > 0) {
      store(p + i * kLanes, x[i], static_cast<int>(left));
    }
  }
}
inline void delta_load(const float* p, vf (&x)[kDeltaVectors]) {
  for (int i = 0; i < kDeltaVectors; i++) x[i] = load(p + i * kLanes);
}
inline void delta_store(float* p, const vf (&x)[kDeltaVectors]) {
  for (int i = 0; i < kDeltaVectors; i++) store(p + i * kLanes, x[i]);
}

/// One token over one block of columns: updates state[K][columns], gives δ, v - α·Sᵀk and o.
inline void delta_step(float* state, int64_t size, const float* q, const float* k, float decay, float beta,
                       const vf (&v)[kDeltaVectors], vf (&rest)[kDeltaVectors], vf (&delta)[kDeltaVectors],
                       vf (&o)[kDeltaVectors]) {
  vf memory[kDeltaVectors];
  for (int i = 0; i < kDeltaVectors; i++) memory[i] = o[i] = zero();
  for (int64_t r = 0; r < size; r++) {
    const vf key = set1(k[r]);
    for (int i = 0; i < kDeltaVectors; i++)
      memory[i] = fma(key, load(state + r * kDeltaColumns + i * kLanes), memory[i]);
  }
  const vf alpha = set1(decay);
  for (int i = 0; i < kDeltaVectors; i++) {
    rest[i] = v[i] - alpha * memory[i];
    delta[i] = set1(beta) * rest[i];
  }
  for (int64_t r = 0; r < size; r++) {
    const vf key = set1(k[r]), query = set1(q[r]);
    float* row = state + r * kDeltaColumns;
    for (int i = 0; i < kDeltaVectors; i++) {
      const vf next = fma(key, delta[i], alpha * load(row + i * kLanes));
      store(row + i * kLanes, next);
      o[i] = fma(query, next, o[i]);
    }
  }
}

/// Follows the states at branches: enters and leaves them as tokens come.
struct DeltaPath {
  float *state, *trunk;  // [K][columns] each
  int64_t elements;
  int64_t run = 0;

  void reach(int64_t branch) {
    if (branch == run) return;
    if (run == 0) {
      std::copy(state, state + elements, trunk);
    } else {
      std::copy(trunk, trunk + elements, state);
    }
    run = branch;
  }
};

template <typename T>
void delta_prepare(const DeltaShape& shape, const T* qkv, const TensorView& a, const TensorView& b,
                   const TensorView& a_log, const TensorView& dt_bias, int64_t first, int64_t count,
                   int64_t head, DeltaTokens& out) {
  const int64_t size = shape.key_size, key_head = head / shape.group;
  const float factor = 1.0f / std::sqrt(static_cast<float>(size));
  for (int64_t i = 0; i < count; i++) {
    const int64_t t = first + i;
    out.query_scale[i] = delta_normal(qkv + shape.query(t, key_head), out.q + i * size, size, factor);
    out.key_scale[i] = delta_normal(qkv + shape.key(t, key_head), out.k + i * size, size, 1.0f);
    const DeltaGate gate(delta_read(a, t * shape.heads + head), delta_read(b, t * shape.heads + head),
                         delta_read(a_log, head), delta_read(dt_bias, head));
    out.decay[i] = gate.decay;
    out.beta[i] = gate.beta;
  }
}

void gated_delta_rule(Stream& stream, const Args& args) {
  const auto [qkv, a, b, a_log, dt_bias, cu, branches, state, slots, lengths, o] = args.tensors<11>();
  const DeltaShape shape("gated_delta_rule", qkv, a[1], o[2], args.i(0), args.i(1));
  const Recurrence sequences("gated_delta_rule", shape.tokens, cu, branches, state, slots, lengths);
  const int64_t size = shape.key_size, elements = size * kDeltaColumns;
  const int64_t room = 2 * elements + DeltaTokens::room(kDeltaChunk, size);
  float* scratch = stream.scratch.take<float>(stream.pool.threads() * room);
  by_storage(qkv.dtype, [&](auto tag) {
    using T = decltype(tag);
    stream.pool.region([&](Worker& worker) {
      float* memory = scratch + worker.index * room;
      DeltaTokens ready(memory + 2 * elements, kDeltaChunk, size);
      const int64_t tasks = sequences.sequences * shape.heads * shape.blocks;
      for (int64_t task; (task = worker.next()) < tasks;) {
        const int64_t column = task % shape.blocks * kDeltaColumns, rest = task / shape.blocks;
        const int64_t head = rest % shape.heads, s = rest / shape.heads;
        const int64_t columns = std::min(kDeltaColumns, shape.value_size - column), slot = sequences.slot(s);
        DeltaPath path{memory, memory + elements, elements};
        float* kept = slot >= 0
                          ? state.as<float>() + (slot * shape.heads + head) * size * shape.value_size + column
                          : nullptr;
        std::fill(path.state, path.state + elements, 0.0f);
        if (kept && sequences.before(s) > 0)
          for (int64_t r = 0; r < size; r++)
            std::copy(kept + r * shape.value_size, kept + r * shape.value_size + columns,
                      path.state + r * kDeltaColumns);
        std::copy(path.state, path.state + elements, path.trunk);
        const int64_t first = sequences.begin(s), count = sequences.length(s);
        for (int64_t i = 0; i < count; i++) {
          const int64_t in_chunk = i % kDeltaChunk, t = first + i;
          if (in_chunk == 0)
            delta_prepare(shape, qkv.as<T>(), a, b, a_log, dt_bias, t, std::min(kDeltaChunk, count - i), head,
                          ready);
          path.reach(sequences.branch_of(t));
          vf v[kDeltaVectors], left[kDeltaVectors], delta[kDeltaVectors], out[kDeltaVectors];
          delta_load(qkv.as<T>() + shape.value(t, head) + column, columns, v);
          delta_step(path.state, size, ready.q + in_chunk * size, ready.k + in_chunk * size,
                     ready.decay[in_chunk], ready.beta[in_chunk], v, left, delta, out);
          delta_store(o.as<T>() + (t * shape.heads + head) * shape.value_size + column, columns, out);
        }
        if (!kept) continue;
        for (int64_t r = 0; r < size; r++)
          std::copy(path.state + r * kDeltaColumns, path.state + r * kDeltaColumns + columns,
                    kept + r * shape.value_size);
      }
    });
  });
}

/// dx of y = x·factor/|x|, added: r·factor·(dy - x̂·(x̂·dy)) with x̂ = x·r = y/factor.
template <typename T>
void delta_normal_backward(const float* y, const float* dy, T* dx, int64_t size, float inverse,
                           float factor) {
  const vf unit = set1(1.0f / factor);
  const float along =
      row_sum(size, [&](int64_t i, int n) { return load_at(y, i, n) * unit * load_at(dy, i, n); });
  by_vector(size, [&](int64_t i, int n) {
    const vf outward = load_at(dy, i, n) - load_at(y, i, n) * unit * set1(along);
    store_at(dx, i, outward * set1(inverse * factor), n);
  });
}

/// What the backward of one token of one head and block of columns adds to.
struct DeltaGradients {
  float *dq, *dk;         // [K] each
  float *ddecay, *dbeta;  // one number each
};

/// From do and the gradient of the state after the token (in place: before it). `before`: the state before it.
inline void delta_step_backward(const float* before, float* dstate, int64_t size, const float* q,
                                const float* k, float decay, float beta, const vf (&rest)[kDeltaVectors],
                                const vf (&delta)[kDeltaVectors], const vf (&dout)[kDeltaVectors],
                                vf (&dv)[kDeltaVectors], const DeltaGradients& into) {
  vf ddelta[kDeltaVectors];
  for (int i = 0; i < kDeltaVectors; i++) ddelta[i] = zero();
  for (int64_t r = 0; r < size; r++) {
    float* row = dstate + r * kDeltaColumns;
    for (int i = 0; i < kDeltaVectors; i++) {
      const vf d = fma(set1(q[r]), dout[i], load(row + i * kLanes));
      store(row + i * kLanes, d);
      ddelta[i] = fma(set1(k[r]), d, ddelta[i]);
    }
  }
  vf dmemory[kDeltaVectors], along = zero(), beta_sum = zero(), decay_sum = zero();
  for (int i = 0; i < kDeltaVectors; i++) {
    dv[i] = set1(beta) * ddelta[i];
    dmemory[i] = zero() - dv[i];
    beta_sum = fma(ddelta[i], rest[i], beta_sum);
    along = fma(delta[i], dout[i], along);
  }
  const float delta_out = sum(along);
  const vf alpha = set1(decay);
  for (int64_t r = 0; r < size; r++) {
    float* row = dstate + r * kDeltaColumns;
    const float* old = before + r * kDeltaColumns;
    vf from_out = zero(), from_memory = zero(), from_delta = zero();
    for (int i = 0; i < kDeltaVectors; i++) {
      const vf s = load(old + i * kLanes), d = load(row + i * kLanes);
      from_out = fma(s, dout[i], from_out);
      from_memory = fma(s, dmemory[i], from_memory);
      from_delta = fma(d, delta[i], from_delta);
      const vf decayed = fma(set1(k[r]), dmemory[i], d);
      decay_sum = fma(s, decayed, decay_sum);
      store(row + i * kLanes, alpha * decayed);
    }
    into.dq[r] += decay * sum(from_out) + k[r] * delta_out;
    into.dk[r] += sum(from_delta) + decay * sum(from_memory);
  }
  *into.dbeta += sum(beta_sum);
  *into.ddecay += sum(decay_sum);
}

/// The gradient of the states, against the order of tokens.
struct DeltaReturn {
  float *dstate, *dtrunk;
  int64_t elements;
  int64_t run;  // of the token after

  void reach(int64_t branch) {
    if (branch == run) return;
    if (branch == 0) {
      // The branch went on from the trunk's state, which the trunk after it goes on from too.
      for (int64_t i = 0; i < elements; i++) dstate[i] += dtrunk[i];
      std::fill(dtrunk, dtrunk + elements, 0.0f);
    } else {
      for (int64_t i = 0; i < elements; i++) dtrunk[i] += dstate[i];
      std::fill(dstate, dstate + elements, 0.0f);
    }
    run = branch;
  }
};

void gated_delta_rule_backward(Stream& stream, const Args& args) {
  const auto [dout, qkv, a, b, a_log, dt_bias, cu, branches, da_log, ddt_bias, dqkv, da, db] =
      args.tensors<13>();
  const DeltaShape shape("gated_delta_rule_backward", qkv, a[1], dout[2], args.i(0), args.i(1));
  const Recurrence sequences("gated_delta_rule_backward", shape.tokens, cu, branches);
  const int64_t size = shape.key_size, elements = size * kDeltaColumns, longest = sequences.longest();
  const int64_t chunks = (longest + kDeltaChunk - 1) / kDeltaChunk;
  // State and trunk at the beginning of every chunk, the states within one, rest and δ of its tokens, the gradients of states,
  // and those of q, k (over the group and its blocks), α and β of one key head.
  const int64_t tokens_room = DeltaTokens::room(longest, size);
  const int64_t room = 2 * chunks * elements + kDeltaChunk * (elements + 2 * kDeltaColumns) + 4 * elements +
                       tokens_room + 2 * longest * size + 2 * longest;
  float* scratch = stream.scratch.take<float>(stream.pool.threads() * room);
  float* drate = stream.scratch.take<float>(2 * shape.tokens * shape.heads);
  float* dsoft = drate + shape.tokens * shape.heads;
  const float factor = 1.0f / std::sqrt(static_cast<float>(size));
  by_storage(qkv.dtype, [&](auto tag) {
    using T = decltype(tag);
    stream.pool.region([&](Worker& worker) {
      float* memory = scratch + worker.index * room;
      const auto take = [&](int64_t count) {
        float* taken = memory;
        memory += count;
        return taken;
      };
      float* const starts = take(2 * chunks * elements);
      float* const states = take(kDeltaChunk * elements);
      float* const rests = take(kDeltaChunk * kDeltaColumns);
      float* const deltas = take(kDeltaChunk * kDeltaColumns);
      float* const walked = take(2 * elements);
      float* const returned = take(2 * elements);
      DeltaTokens ready(take(tokens_room), longest, size);
      float* const dq = take(longest * size);
      float* const dk = take(longest * size);
      float* const ddecay = take(longest);
      float* const dbeta = take(longest);
      const int64_t tasks = sequences.sequences * shape.key_heads;
      for (int64_t task; (task = worker.next()) < tasks;) {
        const int64_t s = task / shape.key_heads, key_head = task % shape.key_heads;
        const int64_t first = sequences.begin(s), count = sequences.length(s);
        std::fill(dq, dq + count * size, 0.0f);
        std::fill(dk, dk + count * size, 0.0f);
        for (int64_t head = key_head * shape.group; head < (key_head + 1) * shape.group; head++) {
          delta_prepare(shape, qkv.as<T>(), a, b, a_log, dt_bias, first, count, head, ready);
          std::fill(ddecay, ddecay + count, 0.0f);
          std::fill(dbeta, dbeta + count, 0.0f);
          for (int64_t column = 0; column < shape.value_size; column += kDeltaColumns) {
            const int64_t columns = std::min(kDeltaColumns, shape.value_size - column);
            DeltaPath path{walked, walked + elements, elements};
            std::fill(walked, walked + 2 * elements, 0.0f);
            const auto step = [&](int64_t i, float* rest, float* delta) {
              vf v[kDeltaVectors], left[kDeltaVectors], d[kDeltaVectors], out[kDeltaVectors];
              delta_load(qkv.as<T>() + shape.value(first + i, head) + column, columns, v);
              delta_step(path.state, size, ready.q + i * size, ready.k + i * size, ready.decay[i],
                         ready.beta[i], v, left, d, out);
              if (!rest) return;
              delta_store(rest, left);
              delta_store(delta, d);
            };
            for (int64_t i = 0; i < count; i++) {
              if (i % kDeltaChunk == 0)
                std::copy(walked, walked + 2 * elements, starts + i / kDeltaChunk * 2 * elements);
              path.reach(sequences.branch_of(first + i));
              step(i, nullptr, nullptr);
            }
            std::fill(returned, returned + 2 * elements, 0.0f);
            DeltaReturn back{returned, returned + elements, elements,
                             count > 0 ? sequences.branch_of(first + count - 1) : 0};
            for (int64_t chunk = (count + kDeltaChunk - 1) / kDeltaChunk - 1; chunk >= 0; chunk--) {
              const int64_t from = chunk * kDeltaChunk, to = std::min(count, from + kDeltaChunk);
              std::copy(starts + chunk * 2 * elements, starts + (chunk + 1) * 2 * elements, walked);
              path.run = from > 0 ? sequences.branch_of(first + from - 1) : 0;
              for (int64_t i = from; i < to; i++) {
                path.reach(sequences.branch_of(first + i));
                std::copy(path.state, path.state + elements, states + (i - from) * elements);
                step(i, rests + (i - from) * kDeltaColumns, deltas + (i - from) * kDeltaColumns);
              }
              for (int64_t i = to - 1; i >= from; i--) {
                const int64_t t = first + i;
                back.reach(sequences.branch_of(t));
                vf rest[kDeltaVectors], delta[kDeltaVectors], incoming[kDeltaVectors], dv[kDeltaVectors];
                delta_load(rests + (i - from) * kDeltaColumns, rest);
                delta_load(deltas + (i - from) * kDeltaColumns, delta);
                delta_load(dout.as<T>() + (t * shape.heads + head) * shape.value_size + column, columns,
                           incoming);
                delta_step_backward(states + (i - from) * elements, returned, size, ready.q + i * size,
                                    ready.k + i * size, ready.decay[i], ready.beta[i], rest, delta, incoming,
                                    dv, {dq + i * size, dk + i * size, ddecay + i, dbeta + i});
                delta_store(dqkv.as<T>() + shape.value(t, head) + column, columns, dv);
              }
            }
          }
          for (int64_t i = 0; i < count; i++) {
            const int64_t at = (first + i) * shape.heads + head;
            const float x = delta_read(a, at) + delta_read(dt_bias, head);
            const DeltaGate gate(delta_read(a, at), delta_read(b, at), delta_read(a_log, head),
                                 delta_read(dt_bias, head));
            // α = exp(g), g = -rate·softened: of a_log g itself, of a and dt_bias -rate·σ(a + dt_bias).
            const float dg = ddecay[i] * gate.decay;
            drate[at] = -dg * gate.rate * gate.softened;
            dsoft[at] = -dg * gate.rate / (1.0f + std::exp(-x));
            da.as<T>()[at] = from_float<T>(dsoft[at]);
            db.as<T>()[at] = from_float<T>(dbeta[i] * gate.beta * (1.0f - gate.beta));
          }
        }
        for (int64_t i = 0; i < count; i++) {
          delta_normal_backward(ready.q + i * size, dq + i * size,
                                dqkv.as<T>() + shape.query(first + i, key_head), size, ready.query_scale[i],
                                factor);
          delta_normal_backward(ready.k + i * size, dk + i * size,
                                dqkv.as<T>() + shape.key(first + i, key_head), size, ready.key_scale[i],
                                1.0f);
        }
      }
    });
  });
  stream.pool.run(shape.heads, [&](int64_t head) {
    const auto add = [&](const TensorView& into, const float* from) {
      if (!into) return;
      float total = 0;
      for (int64_t t = 0; t < shape.tokens; t++) total += from[t * shape.heads + head];
      into.as<float>()[head] += total;
    };
    add(da_log, drate);
    add(ddt_bias, dsoft);
  });
}

}  // namespace

void register_gated_delta_rule(KernelTable& table) {
  table.set("gated_delta_rule", gated_delta_rule);
  table.set("gated_delta_rule_backward", gated_delta_rule_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
