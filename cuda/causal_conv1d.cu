// Causal depthwise convolution with SiLU over x[T,C] and its backward, weight[C,1,K]:
//   y[t,c] = silu(z[t,c]), z[t,c] = Σ_j weight[c,0,K-1-j]·x[t_j,c], t_0 = t, t_j = the token before t_{j-1}
// where the token before the first one of a branch is the last one of the trunk before it. A sequence with a slot takes the
// K-1 inputs before its first token from state[slot], oldest first, and leaves its own last ones there. Overwritten: y, dx;
// accumulated into: dweight. Arithmetic in f32, taps added from the oldest on. One launch each: a thread has a channel, of one
// sequence forward, of all of them in the backward, so that sums have one order.
#include "cuda/elementwise.cuh"
#include "cuda/recurrence.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kMostTaps = 8;
constexpr int kConvThreads = 128;

void check_taps(const char* op, int64_t taps) {
  if (taps < 1 || taps > kMostTaps)
    throw Error("E_SHAPE",
                format("%s: expected 1 to %d taps, got %lld", op, kMostTaps, static_cast<long long>(taps)));
}

/// z of token t, and the tokens of its taps, the newest first; count of them.
template <typename T, typename W>
__device__ float conv_sum(const T* x, const T* state, const W* weight, const Recurrence& sequences,
                          int64_t begin, int64_t before, int64_t t, int64_t c, int64_t channels, int kept,
                          int64_t (&taps)[kMostTaps], int& count) {
  float values[kMostTaps];
  count = 0;
  for (int64_t at = t; at >= 0 && count <= kept; at = sequences.previous(at, begin)) {
    taps[count] = at;
    values[count++] = to_float(x[at * channels + c]);
  }
  int all = count;
  for (int p = 0; state && all <= kept && p < before && p < kept; p++)
    values[all++] = to_float(state[(kept - 1 - p) * channels + c]);
  float sum = 0;
  for (int j = all - 1; j >= 0; j--) sum = fmaf(to_float(weight[kept - j]), values[j], sum);
  return sum;
}

template <typename T, typename W>
__global__ void __launch_bounds__(kConvThreads) conv_kernel(const T* x, const W* weight, Recurrence sequences,
                                                            T* state, T* y, int64_t channels, int kept) {
  const int64_t blocks = (channels + kConvThreads - 1) / kConvThreads;
  const int64_t s = blockIdx.x / blocks, c = blockIdx.x % blocks * kConvThreads + threadIdx.x;
  Recurrence::Place place{};
  if (c >= channels || !sequences.find(s, place) || !sequences.branches_hold(place)) return;
  T* own = place.slot >= 0 ? state + place.slot * kept * channels : nullptr;
  int64_t taps[kMostTaps];
  int count = 0;
  for (int64_t t = place.begin; t < place.end; t++) {
    const float z = conv_sum(x, own, weight + c * (kept + 1), sequences, place.begin, place.before, t, c,
                             channels, kept, taps, count);
    y[t * channels + c] = from_float<T>(z / (1.0f + expf(-z)));
  }
  if (!own) return;
  const int64_t length = place.end - place.begin;
  for (int i = 0; i < kept; i++) {
    const int64_t at = length - kept + i;  // of the tokens here; below 0: kept before
    own[i * channels + c] = at >= 0 ? x[(place.begin + at) * channels + c] : own[(i + length) * channels + c];
  }
}

template <typename T, typename W>
__global__ void __launch_bounds__(kConvThreads)
    conv_backward_kernel(const T* dy, const T* x, const W* weight, Recurrence sequences, float* dweight,
                         float* sums, T* dx, int64_t channels, int kept) {
  const int64_t c = int64_t{blockIdx.x} * kConvThreads + threadIdx.x;
  if (c >= channels) return;
  float dtaps[kMostTaps] = {};
  int64_t taps[kMostTaps];
  int count = 0;
  for (int64_t s = 0; s < sequences.sequences; s++) {
    Recurrence::Place place{};
    if (!sequences.find(s, place) || !sequences.branches_hold(place)) return;
    for (int64_t t = place.begin; t < place.end; t++) sums[t * channels + c] = 0;
    for (int64_t t = place.begin; t < place.end; t++) {
      const float z = conv_sum<T, W>(x, nullptr, weight + c * (kept + 1), sequences, place.begin, 0, t, c,
                                     channels, kept, taps, count);
      const float sigma = 1.0f / (1.0f + expf(-z));
      const float dz = to_float(dy[t * channels + c]) * fmaf(z * sigma, 1.0f - sigma, sigma);
      for (int j = count - 1; j >= 0; j--) {
        const int64_t at = taps[j] * channels + c;
        sums[at] = fmaf(to_float(weight[c * (kept + 1) + kept - j]), dz, sums[at]);
        dtaps[j] = fmaf(to_float(x[at]), dz, dtaps[j]);
      }
    }
    for (int64_t t = place.begin; t < place.end; t++)
      dx[t * channels + c] = from_float<T>(sums[t * channels + c]);
  }
  if (!dweight) return;
  for (int j = 0; j <= kept; j++) dweight[c * (kept + 1) + kept - j] += dtaps[j];
}

void causal_conv1d(Stream& stream, const Args& args) {
  const auto [x, weight, cu, branches, state, slots, lengths, y] = args.tensors<8>();
  const int64_t channels = x[1];
  check_taps("causal_conv1d", weight[2]);
  const Recurrence sequences =
      recurrence("causal_conv1d", stream, x[0], {2, 3, 5, 6}, cu, branches, state, slots, lengths);
  const int kept = static_cast<int>(weight[2] - 1);
  by_storage(x.dtype, [&, &x = x, &weight = weight, &state = state, &y = y](auto t) {
    using T = decltype(t);
    by_storage(weight.dtype, [&](auto w) {
      using W = decltype(w);
      stream.launch(conv_kernel<T, W>, sequences.sequences * ((channels + kConvThreads - 1) / kConvThreads),
                    kConvThreads, 0, x.as<T>(), weight.as<W>(), sequences, state.as<T>(), y.as<T>(), channels,
                    kept);
    });
  });
}

void causal_conv1d_backward(Stream& stream, const Args& args) {
  const auto [dy, x, weight, cu, branches, dweight, dx] = args.tensors<7>();
  const int64_t channels = x[1];
  check_taps("causal_conv1d_backward", weight[2]);
  const Recurrence sequences = recurrence("causal_conv1d_backward", stream, x[0], {3, 4}, cu, branches);
  const int kept = static_cast<int>(weight[2] - 1);
  float* sums = stream.scratch.take<float>(x.numel());
  by_storage(x.dtype, [&, &dy = dy, &x = x, &weight = weight, &dweight = dweight, &dx = dx](auto t) {
    using T = decltype(t);
    by_storage(weight.dtype, [&](auto w) {
      using W = decltype(w);
      stream.launch(conv_backward_kernel<T, W>, (channels + kConvThreads - 1) / kConvThreads, kConvThreads, 0,
                    dy.as<T>(), x.as<T>(), weight.as<W>(), sequences, dweight.as<float>(), sums, dx.as<T>(),
                    channels, kept);
    });
  });
}

}  // namespace

void register_causal_conv1d(KernelTable& table) {
  table.set("causal_conv1d", causal_conv1d);
  table.set("causal_conv1d_backward", causal_conv1d_backward);
}

}  // namespace steptrain::cuda
