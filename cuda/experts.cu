// Which experts a token goes to, and the sum of what they answer. route: softmax of a token's logits, the k experts of the
// largest (of equals the first), their weights, and the rows of all tokens sorted by expert; a warp a token, then a block an
// expert. combine_experts: z[t] = Σ_j weights[t,j] · y[places[t,j]], in order of j. No atomics: bits depend neither on the
// order of blocks nor on other tokens. Places that are no permutation are not found here.
#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "cuda/elementwise.cuh"
#include "cuda/reduce.cuh"
#include "cuda/row_sampler.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kTaskWarps = kThreads / kWarp;
constexpr int kSortThreads = 512;
constexpr int kSortItems = 16;  // of a thread at a time

int64_t warp_blocks(int64_t warps) {
  return (warps + kTaskWarps - 1) / kTaskWarps;
}
__device__ inline int64_t own_task() {
  return int64_t{blockIdx.x} * kTaskWarps + threadIdx.x / kWarp;
}
__device__ inline int own_lane() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

/// The probabilities of a token's experts; made by a whole warp.
template <typename T>
struct Softmax {
  const T* logits;
  float largest = -INFINITY, mass = 0;
  __device__ Softmax(const T* logits, int64_t experts) : logits(logits) {
    for (int64_t e = own_lane(); e < experts; e += kWarp) largest = fmaxf(largest, to_float(logits[e]));
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    for (int64_t e = own_lane(); e < experts; e += kWarp) mass += expf(to_float(logits[e]) - largest);
    mass = warp_sum(mass);
  }
  __device__ float of(int64_t expert) const {
    return expf(to_float(logits[expert]) - largest) / mass;
  }
};

/// An expert and the order of its logit; NaN is below all numbers.
struct Candidate {
  uint32_t order;
  int32_t expert;
  __device__ bool precedes(const Candidate& other) const {
    return order > other.order || (order == other.order && expert < other.expert);
  }
};

/// With `of` [T], the op's input 1, token t's rows are sorted by (of[t] + 1)·E + expert, where of[t] is -1 to count - 1.
struct Adapters {
  const int32_t* of;
  int64_t count;
  int32_t* keys;
  FaultReporter faults;
  /// Of the token's expert 0; as of -1 where the adapter is none.
  __device__ int32_t first_key(int64_t t, int64_t experts) const {
    if (!of) return 0;
    const int64_t adapter = of[t];
    if (adapter >= -1 && adapter < count) return static_cast<int32_t>((adapter + 1) * experts);
    report(faults, FaultKind::slot, 1, t, adapter, count);
    return 0;
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    choose_kernel(const T* logits, int64_t tokens, int64_t experts, int64_t k, bool normalise,
                  const __grid_constant__ Adapters adapters, float* weights, int32_t* chosen) {
  const int64_t t = own_task();
  if (t >= tokens) return;
  const int32_t first_key = adapters.first_key(t, experts);
  const Softmax<T> softmax(logits + t * experts, experts);
  Candidate last{UINT32_MAX, -1};
  float total = 0;
  for (int64_t j = 0; j < k; j++) {
    Candidate best{0, INT32_MAX};
    for (int64_t e = own_lane(); e < experts; e += kWarp) {
      const float x = to_float(softmax.logits[e]);
      const Candidate own{x == x ? sampler::order_of(x) : 0u, static_cast<int32_t>(e)};
      if (last.precedes(own) && own.precedes(best)) best = own;
    }
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      const Candidate other{__shfl_xor_sync(0xffffffffu, best.order, distance),
                            __shfl_xor_sync(0xffffffffu, best.expert, distance)};
      if (other.precedes(best)) best = other;
    }
    last = best;
    const float p = softmax.of(best.expert);
    total += p;
    if (own_lane() == 0) {
      weights[t * k + j] = p, chosen[t * k + j] = best.expert;
      if (adapters.keys) adapters.keys[t * k + j] = first_key + best.expert;
    }
  }
  if (!normalise || own_lane() != 0) return;
  for (int64_t j = 0; j < k; j++) weights[t * k + j] /= total;
}

/// Σ of `value` over the block's threads before the own one; `total` over all.
__device__ int32_t sum_before(int32_t value, int32_t& total) {
  __shared__ int32_t of_warps[kSortThreads / kWarp];
  const int lane = own_lane(), warp = static_cast<int>(threadIdx.x) / kWarp;
  int32_t through = value;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int32_t other = __shfl_up_sync(0xffffffffu, through, distance);
    if (lane >= distance) through += other;
  }
  __syncthreads();  // an earlier call may still be reading
  if (lane == kWarp - 1) of_warps[warp] = through;
  __syncthreads();
  int32_t before = through - value;
  total = 0;
#pragma unroll
  for (int i = 0; i < kSortThreads / kWarp; i++) {
    if (i < warp) before += of_warps[i];
    total += of_warps[i];
  }
  return before;
}

/// A counting sort: the block of a key counts what goes to the keys before it, then walks through all in order, many at a
/// time.
__global__ void __launch_bounds__(kSortThreads)
    sort_kernel(const int32_t* keys, int64_t choices, int64_t k, int32_t* places, int32_t* rows,
                int32_t* offsets) {
  const auto key = static_cast<int32_t>(blockIdx.x);
  int32_t place = 0;
  for (int64_t i = threadIdx.x; i < choices; i += kSortThreads) place += keys[i] < key;
  place = block_sum(place);
  if (threadIdx.x == 0) {
    offsets[key] = place;
    if (blockIdx.x + 1 == gridDim.x) offsets[key + 1] = static_cast<int32_t>(choices);
  }
  for (int64_t begin = 0; begin < choices; begin += kSortThreads * kSortItems) {
    const int64_t first = begin + int64_t{threadIdx.x} * kSortItems;
    uint32_t own = 0;  // which of the thread's choices have the key
#pragma unroll
    for (int i = 0; i < kSortItems; i++)
      if (first + i < choices && keys[first + i] == key) own |= 1u << i;
    int32_t total;
    int32_t next = place + sum_before(__popc(own), total);
#pragma unroll
    for (int i = 0; i < kSortItems; i++) {
      if ((own >> i & 1) == 0) continue;
      places[first + i] = next;
      rows[next] = static_cast<int32_t>((first + i) / k);
      next++;
    }
    place += total;
  }
}

void route(Stream& stream, const Args& args) {
  const auto [logits, adapter, weights, experts, places, rows, offsets] = args.tensors<7>();
  const int64_t tokens = logits[0], count = logits[1], k = args.i(0), keys = offsets[0] - 1;
  if (k < 1 || k > count)
    throw Error("E_RANGE", format("route: k is %lld, expected 1 to the %lld experts of logits",
                                  static_cast<long long>(k), static_cast<long long>(count)));
  if (keys < count || keys % count != 0)
    throw Error("E_RANGE", format("route: P is %lld, expected a multiple of the %lld experts of logits",
                                  static_cast<long long>(keys), static_cast<long long>(count)));
  Adapters adapters{adapter.as<const int32_t>(), keys / count - 1, nullptr, stream.faults};
  if (adapter) adapters.keys = stream.scratch.take<int32_t>(tokens * k);
  by_storage(logits.dtype, [&, &logits = logits, &weights = weights, &experts = experts](auto t) {
    using T = decltype(t);
    stream.launch(choose_kernel<T>, warp_blocks(tokens), kThreads, 0, logits.as<const T>(), tokens, count, k,
                  args.i(1) != 0, adapters, weights.as<float>(), experts.as<int32_t>());
  });
  const int32_t* const sorted_by = adapter ? adapters.keys : experts.as<const int32_t>();
  stream.launch(sort_kernel, keys, kSortThreads, 0, sorted_by, tokens * k, k, places.as<int32_t>(),
                rows.as<int32_t>(), offsets.as<int32_t>());
}

/// With weights w of the chosen experts: normalised ones are the softmax of the chosen logits alone. `balance` is a gradient of
/// all probabilities.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    route_backward_kernel(const float* dweights, const T* logits, const float* weights, const int32_t* chosen,
                          const float* balance, int64_t tokens, int64_t experts, int64_t k, bool normalise,
                          FaultReporter faults, T* dlogits) {
  const int64_t t = own_task();
  if (t >= tokens) return;
  for (int64_t i = t * k + own_lane(); i < (t + 1) * k; i += kWarp)
    index_holds(faults, 3, i, chosen[i], experts);
  dweights += t * k, weights += t * k, chosen += t * k;
  const Softmax<T> softmax(logits + t * experts, experts);
  float mean = 0, mean_balance = 0;
  for (int64_t j = 0; j < k; j++) mean = fmaf(weights[j], dweights[j], mean);
  if (balance) {
    for (int64_t e = own_lane(); e < experts; e += kWarp)
      mean_balance = fmaf(softmax.of(e), balance[e], mean_balance);
    mean_balance = warp_sum(mean_balance);
  }
  for (int64_t e = own_lane(); e < experts; e += kWarp) {
    const float p = softmax.of(e);
    float gradient = normalise ? 0.0f : -p * mean;
    for (int64_t j = 0; j < k; j++)
      if (chosen[j] == e) gradient = weights[j] * (dweights[j] - mean);
    if (balance) gradient = fmaf(p, balance[e] - mean_balance, gradient);
    dlogits[t * experts + e] = from_float<T>(gradient);
  }
}

void route_backward(Stream& stream, const Args& args) {
  const auto [dweights, logits, weights, experts, balance, dlogits] = args.tensors<6>();
  const int64_t tokens = logits[0];
  by_storage(logits.dtype, [&, &dweights = dweights, &logits = logits, &weights = weights, &experts = experts,
                            &balance = balance, &dlogits = dlogits](auto t) {
    using T = decltype(t);
    stream.launch(route_backward_kernel<T>, warp_blocks(tokens), kThreads, 0, dweights.as<const float>(),
                  logits.as<const T>(), weights.as<const float>(), experts.as<const int32_t>(),
                  balance.as<const float>(), tokens, logits[1], weights[1], args.i(0) != 0, stream.faults,
                  dlogits.as<T>());
  });
}

/// Rows of experts' answers, and where a token's lie; the op's input `argument` are the places.
struct Answers {
  const int32_t* places;
  const float* weights;
  int64_t tokens, k, rows, width;
  int argument;
  FaultReporter faults;
  bool wide;
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const __grid_constant__ Answers answers, const T* y, T* z) {
  const int64_t width = answers.width, eights = (width + kEight - 1) / kEight;
  const int64_t task = int64_t{blockIdx.x} * kThreads + threadIdx.x, t = task / eights;
  if (t >= answers.tokens) return;
  const int64_t h = task % eights * kEight;
  const int count = in_group(h, width);
  float sum[kEight] = {};
  for (int64_t i = t * answers.k; i < (t + 1) * answers.k; i++) {
    const int64_t place = answers.places[i];
    if (!index_holds(answers.faults, answers.argument, i, place, answers.rows)) return;
    const float weight = answers.weights[i];
    float v[kEight];
    load8(y + place * width + h, count, answers.wide, v);
#pragma unroll
    for (int e = 0; e < kEight; e++) sum[e] = fmaf(weight, v[e], sum[e]);
  }
  store8(z + t * width + h, count, answers.wide, sum);
}

/// A warp a token's expert.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    combine_backward_kernel(const __grid_constant__ Answers answers, const T* dz, const T* y, T* dy,
                            float* dweights) {
  const int64_t i = own_task(), width = answers.width;
  if (i >= answers.tokens * answers.k) return;
  const int64_t t = i / answers.k, place = answers.places[i];
  if (!index_holds(answers.faults, answers.argument, i, place, answers.rows)) return;
  const float weight = answers.weights[i];
  float product = 0;
  for (int64_t h = int64_t{own_lane()} * kEight; h < width; h += kWarp * kEight) {
    const int count = in_group(h, width);
    float gradient[kEight], v[kEight];
    load8(dz + t * width + h, count, answers.wide, gradient);
    load8(y + place * width + h, count, answers.wide, v);
#pragma unroll
    for (int e = 0; e < kEight; e++) {
      product = fmaf(gradient[e], v[e], product);
      gradient[e] *= weight;
    }
    store8(dy + place * width + h, count, answers.wide, gradient);
  }
  product = warp_sum(product);
  if (own_lane() == 0) dweights[i] = product;
}

Answers answers_of(const Stream& stream, const char* op, const TensorView& y, const TensorView& places,
                   int argument, const TensorView& weights, bool wide) {
  if (places.numel() != y[0])
    throw Error("E_SHAPE", format("%s: y has %lld rows, expected one for each of the %lld places", op,
                                  static_cast<long long>(y[0]), static_cast<long long>(places.numel())));
  return {places.as<const int32_t>(),
          weights.as<const float>(),
          places[0],
          places[1],
          y[0],
          y[1],
          argument,
          stream.faults,
          wide};
}

void combine_experts(Stream& stream, const Args& args) {
  const auto [y, places, weights, z] = args.tensors<4>();
  const Answers answers =
      answers_of(stream, "combine_experts", y, places, 1, weights, all_wide({y, z}, y[1]));
  const int64_t tasks = answers.tokens * ((answers.width + kEight - 1) / kEight);
  by_storage(y.dtype, [&, &y = y, &z = z](auto t) {
    using T = decltype(t);
    stream.launch(combine_kernel<T>, (tasks + kThreads - 1) / kThreads, kThreads, 0, answers, y.as<const T>(),
                  z.as<T>());
  });
}

void combine_experts_backward(Stream& stream, const Args& args) {
  const auto [dz, y, places, weights, dy, dweights] = args.tensors<6>();
  const Answers answers =
      answers_of(stream, "combine_experts_backward", y, places, 2, weights, all_wide({dz, y, dy}, y[1]));
  by_storage(y.dtype, [&, &dz = dz, &y = y, &dy = dy, &dweights = dweights](auto t) {
    using T = decltype(t);
    stream.launch(combine_backward_kernel<T>, warp_blocks(answers.rows), kThreads, 0, answers,
                  dz.as<const T>(), y.as<const T>(), dy.as<T>(), dweights.as<float>());
  });
}

}  // namespace

void register_experts(KernelTable& table) {
  table.set("route", route);
  table.set("route_backward", route_backward);
  table.set("combine_experts", combine_experts);
  table.set("combine_experts_backward", combine_experts_backward);
}

}  // namespace steptrain::cuda
