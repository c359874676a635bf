// Causal depthwise convolution with SiLU over x[T,C] and its backward, weight[C,1,K]:
//   y[t,c] = silu(z[t,c]), z[t,c] = Σ_j weight[c,0,K-1-j]·x[t_j,c], t_0 = t, t_j = the token before t_{j-1}
// where the token before the first one of a branch is the last one of the trunk before it. A sequence with a slot takes the
// K-1 inputs before its first token from state[slot], oldest first, and leaves its own last ones there. Overwritten: y, dx;
// accumulated into: dweight. Arithmetic in f32, taps added from the oldest on; a token's bits depend on its K inputs alone.
#include <algorithm>

#include "cpu/norm.h"
#include "cpu/recurrence.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kConvChannels = 128;  // of a task

/// The token before each one in its sequence; -1: none.
const int32_t* conv_previous(Stream& stream, const Recurrence& sequences) {
  auto* previous = stream.scratch.take<int32_t>(sequences.tokens + 1);
  for (int64_t s = 0; s < sequences.sequences; s++) {
    int32_t trunk = -1, last = -1;
    int64_t run = 0;
    const int64_t first = sequences.begin(s);
    for (int64_t i = 0; i < sequences.length(s); i++) {
      const int64_t t = first + i, own = sequences.branch_of(t);
      previous[t] = own == run ? last : trunk;
      last = static_cast<int32_t>(t);
      if (own == 0) trunk = last;
      run = own;
    }
  }
  return previous;
}

/// weight[C,1,K] as f32[K,C].
template <typename W>
const float* conv_taps(Stream& stream, const TensorView& weight) {
  const int64_t channels = weight[0], taps = weight[2];
  auto* turned = stream.scratch.take<float>(channels * taps);
  for (int64_t c = 0; c < channels; c++)
    for (int64_t k = 0; k < taps; k++) turned[k * channels + c] = to_float(weight.as<W>()[c * taps + k]);
  return turned;
}

/// Rows of x and of a state behind one another: the j-th input before token t, or null where there is none.
template <typename T>
struct ConvInputs {
  const T* x;
  const T* state;  // [K-1, C] of the sequence, or null
  const int32_t* previous;
  int64_t channels, kept, before;

  /// body(k, row) for the taps that t has, oldest first.
  template <typename F>
  void taps(int64_t t, const T** rows, F body) const {
    int64_t found = 0, at = t;
    for (; found <= kept && at >= 0; at = previous[at]) rows[found++] = x + at * channels;
    for (int64_t p = 0; state && found <= kept && p < std::min(before, kept); p++)
      rows[found++] = state + (kept - 1 - p) * channels;
    for (int64_t j = found - 1; j >= 0; j--) body(kept - j, rows[j]);
  }
};

constexpr int64_t kMostTaps = 8;

void check_taps(const char* op, int64_t taps) {
  if (taps < 1 || taps > kMostTaps)
    throw Error("E_SHAPE", format("%s: expected 1 to %lld taps, got %lld", op,
                                  static_cast<long long>(kMostTaps), static_cast<long long>(taps)));
}

void causal_conv1d(Stream& stream, const Args& args) {
  const auto [x, weight, cu, branches, state, slots, lengths, y] = args.tensors<8>();
  const int64_t channels = x[1], kept = weight[2] - 1;
  check_taps("causal_conv1d", weight[2]);
  const Recurrence sequences("causal_conv1d", x[0], cu, branches, state, slots, lengths);
  const int32_t* previous = conv_previous(stream, sequences);
  const int64_t blocks = (channels + kConvChannels - 1) / kConvChannels;
  by_storage(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    by_storage(weight.dtype, [&](auto weight_tag) {
      const float* taps = conv_taps<decltype(weight_tag)>(stream, weight);
      stream.pool.run(sequences.sequences * blocks, [&](int64_t task) {
        const int64_t s = task / blocks, from = task % blocks * kConvChannels;
        const int64_t width = std::min(kConvChannels, channels - from), slot = sequences.slot(s);
        T* kept_rows = slot >= 0 ? state.as<T>() + slot * kept * channels : nullptr;
        const ConvInputs<T> inputs{x.as<T>(), kept_rows, previous, channels, kept, sequences.before(s)};
        const T* rows[kMostTaps];
        const int64_t first = sequences.begin(s), count = sequences.length(s);
        for (int64_t t = first; t < first + count; t++) {
          float sums[kConvChannels] = {};
          inputs.taps(t, rows, [&](int64_t k, const T* row) {
            by_vector(width, [&](int64_t c, int n) {
              store_at(sums, c,
                       fma(load_at(taps + k * channels + from, c, n), load_at(row + from, c, n),
                           load_at(sums, c, n)),
                       n);
            });
          });
          by_vector(width, [&](int64_t c, int n) {
            const vf z = load_at(sums, c, n);
            store_at(y.as<T>() + t * channels + from, c, z * sigmoid(z), n);
          });
        }
        if (!kept_rows) return;
        for (int64_t i = 0; i < kept; i++) {
          const int64_t at = count - kept + i;  // of the tokens here; below 0: kept before
          const T* source =
              at >= 0 ? x.as<T>() + (first + at) * channels : kept_rows + (i + count) * channels;
          std::copy(source + from, source + from + width, kept_rows + i * channels + from);
        }
      });
    });
  });
}

void causal_conv1d_backward(Stream& stream, const Args& args) {
  const auto [dy, x, weight, cu, branches, dweight, dx] = args.tensors<7>();
  const int64_t channels = x[1], taps_count = weight[2], kept = taps_count - 1;
  check_taps("causal_conv1d_backward", taps_count);
  const Recurrence sequences("causal_conv1d_backward", x[0], cu, branches);
  const int32_t* previous = conv_previous(stream, sequences);
  const int64_t blocks = (channels + kConvChannels - 1) / kConvChannels, longest = sequences.longest();
  const int64_t room = (longest + taps_count) * kConvChannels;
  float* scratch = stream.scratch.take<float>(stream.pool.threads() * room);
  by_storage(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    by_storage(weight.dtype, [&](auto weight_tag) {
      const float* taps = conv_taps<decltype(weight_tag)>(stream, weight);
      stream.pool.region([&](Worker& worker) {
        float* sums = scratch + worker.index * room;
        float* dtaps = sums + longest * kConvChannels;
        for (int64_t block; (block = worker.next()) < blocks;) {
          const int64_t from = block * kConvChannels, width = std::min(kConvChannels, channels - from);
          std::fill(dtaps, dtaps + taps_count * kConvChannels, 0.0f);
          for (int64_t s = 0; s < sequences.sequences; s++) {
            const int64_t first = sequences.begin(s), count = sequences.length(s);
            std::fill(sums, sums + count * kConvChannels, 0.0f);
            const ConvInputs<T> inputs{x.as<T>(), nullptr, previous, channels, kept, 0};
            const T* rows[kMostTaps];
            for (int64_t t = first; t < first + count; t++) {
              float dz[kConvChannels] = {};
              inputs.taps(t, rows, [&](int64_t k, const T* row) {
                by_vector(width, [&](int64_t c, int n) {
                  store_at(dz, c,
                           fma(load_at(taps + k * channels + from, c, n), load_at(row + from, c, n),
                               load_at(dz, c, n)),
                           n);
                });
              });
              by_vector(width, [&](int64_t c, int n) {
                const vf z = load_at(dz, c, n), s1 = sigmoid(z);
                const vf d = load_at(dy.as<T>() + t * channels + from, c, n);
                store_at(dz, c, d * fma(z * s1, set1(1.0f) - s1, s1), n);
              });
              inputs.taps(t, rows, [&](int64_t k, const T* row) {
                float* into = sums + ((row - x.as<T>()) / channels - first) * kConvChannels;
                float* dtap = dtaps + k * kConvChannels;
                by_vector(width, [&](int64_t c, int n) {
                  const vf d = load_at(dz, c, n);
                  store_at(into, c, fma(load_at(taps + k * channels + from, c, n), d, load_at(into, c, n)),
                           n);
                  store_at(dtap, c, fma(load_at(row + from, c, n), d, load_at(dtap, c, n)), n);
                });
              });
            }
            for (int64_t i = 0; i < count; i++) {
              by_vector(width, [&](int64_t c, int n) {
                store_at(dx.as<T>() + (first + i) * channels + from, c,
                         load_at(sums + i * kConvChannels, c, n), n);
              });
            }
          }
          if (!dweight) continue;
          for (int64_t c = 0; c < width; c++)
            for (int64_t k = 0; k < taps_count; k++)
              dweight.as<float>()[(from + c) * taps_count + k] += dtaps[k * kConvChannels + c];
        }
      });
    });
  });
}

}  // namespace

void register_causal_conv1d(KernelTable& table) {
  table.set("causal_conv1d", causal_conv1d);
  table.set("causal_conv1d_backward", causal_conv1d_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
