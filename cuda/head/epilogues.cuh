// Epilogues of the head's product, whose logits z = x·Wᵀ are never written: they are folded into the softmax
// of each row, or mapped to weights for the next product.
#pragma once

#include "cuda/gemm/parts.cuh"
#include "cuda/log2.h"

namespace steptrain::cuda {

/// The softmax of a row over some of the tokens, in powers of two: s = z·scale with
/// scale = log2(e)/temperature.
struct alignas(16) SoftmaxPart {
  float largest;   // logit
  int32_t argmax;  // the first token that has it
  float mass;      // Σ 2^(s - shift)
  float moment;    // Σ 2^(s - shift)·(s - shift)
};
constexpr SoftmaxPart kNoTokens{-INFINITY, INT32_MAX, 0, 0};

/// Is subtracted from every s. Finite, so that impossible tokens, with z = -infinity, have a mass of 0.
__device__ inline float shift_of(float largest, float scale) {
  return fmaxf(largest * scale, -1e30f);
}

__device__ inline SoftmaxPart merged(const SoftmaxPart& a, const SoftmaxPart& b, float scale) {
  const float shift_a = shift_of(a.largest, scale), shift_b = shift_of(b.largest, scale),
              to = fmaxf(shift_a, shift_b);
  const bool a_leads = a.largest > b.largest || (a.largest == b.largest && a.argmax < b.argmax);
  SoftmaxPart sum{a_leads ? a.largest : b.largest, a_leads ? a.argmax : b.argmax, 0, 0};
  const auto add = [&](const SoftmaxPart& part, float distance) {
    const float factor = exp2_approximate(distance);
    sum.mass = fmaf(part.mass, factor, sum.mass);
    if (part.mass > 0) sum.moment = fmaf(factor, fmaf(distance, part.mass, part.moment), sum.moment);
  };
  add(a, shift_a - to);
  add(b, shift_b - to);
  return sum;
}

/// Folds kColumns logits of a row into one SoftmaxPart for each part of the tile's columns, written to
/// parts[row][first_part + item·kParts + part], and writes the target's logit.
struct Fold {
  static constexpr int64_t kColumns = 2048;
  static constexpr bool kLora = false;

  SoftmaxPart* parts;
  int64_t parts_per_row, first_part;
  int32_t first_token;     // of the product's columns
  const int32_t* targets;  // [rows]
  float* target_logits;    // [rows]
  float scale;

  template <typename Sums>
  struct Item {
    static constexpr int kKept = (Sums::kRows + Sums::kLanes - 1) / Sums::kLanes;
    const Fold& fold;
    const Product& p;
    /// The parts that this thread keeps: of rows i·kLanes + lane,
    /// so that lanes with the same rows divide the work.
    SoftmaxPart kept[kKept];

    __device__ Item(const Fold& fold, const Product& p) : fold(fold), p(p) {
#pragma unroll
      for (int h = 0; h < kKept; h++) kept[h] = kNoTokens;
    }

    __device__ void add(Sums& sums, bool last) {
      const int lane = static_cast<int>(threadIdx.x) % Sums::kLanes;
      if (sums.column(Sums::kPairs - 1) + 1 >= p.columns) hide_absent(sums);
#pragma unroll
      for (int i = 0; i < Sums::kRows; i++) {
        const SoftmaxPart part = part_of(sums, i);
        if (lane == i % Sums::kLanes)
          kept[i / Sums::kLanes] = merged(kept[i / Sums::kLanes], part, fold.scale);
        find_target(sums, i);
      }
      if (!last) return;
      const int64_t at = fold.first_part + sums.tile.column / kColumns * Sums::kParts + sums.part();
#pragma unroll
      for (int h = 0; h < kKept; h++) {
        const int i = h * Sums::kLanes + lane;
        if (i < Sums::kRows && sums.row(i) < p.rows)
          fold.parts[sums.row(i) * fold.parts_per_row + at] = kept[h];
      }
    }

    /// Columns beyond the vocabulary become impossible tokens.
    __device__ void hide_absent(Sums& sums) const {
#pragma unroll
      for (int i = 0; i < Sums::kRows; i++)
#pragma unroll
        for (int pair = 0; pair < Sums::kPairs; pair++)
#pragma unroll
          for (int e = 0; e < 2; e++)
            if (sums.column(pair) + e >= p.columns) sums.at(i, pair, e) = -INFINITY;
    }

    /// The softmax of the tile's row i, the same for all lanes that share the row.
    __device__ SoftmaxPart part_of(Sums& sums, int i) const {
      SoftmaxPart part = kNoTokens;
#pragma unroll
      for (int pair = 0; pair < Sums::kPairs; pair++)
        part.largest = fmaxf(part.largest, fmaxf(sums.at(i, pair, 0), sums.at(i, pair, 1)));
#pragma unroll
      for (int distance = 1; distance < Sums::kLanes; distance *= 2)
        part.largest = fmaxf(part.largest, __shfl_xor_sync(0xffffffffu, part.largest, distance));

      const int32_t first = fold.first_token + static_cast<int32_t>(sums.column(0));
      const float shift = shift_of(part.largest, fold.scale);
#pragma unroll
      for (int pair = Sums::kPairs - 1; pair >= 0; pair--)
#pragma unroll
        for (int e = 1; e >= 0; e--) {
          const float z = sums.at(i, pair, e), s = fmaf(z, fold.scale, -shift), weight = exp2_approximate(s);
          if (z == part.largest) part.argmax = first + Sums::kStride * pair + e;
          part.mass += weight;
          part.moment = weight > 0 ? fmaf(weight, s, part.moment) : part.moment;  // s may be -infinity
        }
#pragma unroll
      for (int distance = 1; distance < Sums::kLanes; distance *= 2) {
        const int32_t other = __shfl_xor_sync(0xffffffffu, part.argmax, distance);
        part.argmax = other < part.argmax ? other : part.argmax;
        part.mass += __shfl_xor_sync(0xffffffffu, part.mass, distance);
        part.moment += __shfl_xor_sync(0xffffffffu, part.moment, distance);
      }
      return part;
    }

    __device__ void find_target(Sums& sums, int i) const {
      if (sums.row(i) >= p.rows) return;
      // The target's distance from this thread's first column; wraps around if it lies before.
      const uint32_t beyond = static_cast<uint32_t>(fold.targets[sums.row(i)]) -
                              static_cast<uint32_t>(fold.first_token + sums.column(0));
      constexpr uint32_t kReach = Sums::kStride * Sums::kPairs;
      if (beyond >= kReach) return;
      const int target = static_cast<int>(beyond);
#pragma unroll
      for (int pair = 0; pair < Sums::kPairs; pair++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (target == Sums::kStride * pair + e) fold.target_logits[sums.row(i)] = sums.at(i, pair, e);
    }
  };
};

/// Writes value.row(row)(column, z) of each logit z to p.out, with elements T.
template <typename T, typename Value>
struct Map {
  static constexpr int64_t kColumns = 0;
  static constexpr bool kLora = false;

  Value value;

  template <typename Sums>
  struct Item {
    const Map& map;
    const Product& p;

    __device__ Item(const Map& map, const Product& p) : map(map), p(p) {}

    __device__ void apply(Sums& sums) {
#pragma unroll
      for (int i = 0; i < Sums::kRows; i++) {
        if (sums.row(i) >= p.rows) continue;
        const auto value = map.value.row(sums.row(i));
#pragma unroll
        for (int pair = 0; pair < Sums::kPairs; pair++)
#pragma unroll
          for (int e = 0; e < 2; e++) sums.at(i, pair, e) = value(sums.column(pair) + e, sums.at(i, pair, e));
      }
    }

    __device__ void add(Sums& sums, bool) {
      const bool paired = writes_pairs(p);
#pragma unroll
      for (int i = 0; i < Sums::kRows; i++) {
        const int64_t row = sums.row(i);
        if (row >= p.rows) continue;
        const auto value = map.value.row(row);
        T* const out = static_cast<T*>(p.out) + row * p.columns;
#pragma unroll
        for (int pair = 0; pair < Sums::kPairs; pair++) {
          const int64_t column = sums.column(pair);
          if (column >= p.columns) continue;
          const float first = value(column, sums.at(i, pair, 0)),
                      second = value(column + 1, sums.at(i, pair, 1));
          if (paired) {
            store_pair(out + column, first, second);
          } else {
            out[column] = from_float<T>(first);
            if (column + 1 < p.columns) out[column + 1] = from_float<T>(second);
          }
        }
      }
    }
  };
};

/// p = exp(z/temperature - lse).
struct Probability {
  const float* lse;  // [rows]
  float inverse;     // of the temperature
  struct Row {
    float lse, inverse;
    __device__ float operator()(int64_t, float z) const {
      return exp2_approximate(fmaf(z, inverse, -lse) * kLog2e);
    }
  };
  __device__ Row row(int64_t row) const { return {lse[row], inverse}; }
};

/// dz = (dlogprob·([v = target] - p) - dentropy·p·(log p + H)) / temperature.
struct LogitGradient {
  const float *dlogprobs, *dentropy, *lse, *entropy;  // [rows]; dentropy may be absent
  const int32_t* targets;
  int32_t first_token;
  float inverse;
  struct Row {
    float dlogprob, dentropy, lse, entropy, inverse;
    int64_t target;  // as a column
    __device__ float operator()(int64_t column, float z) const {
      const float logp = fmaf(z, inverse, -lse), p = exp2_approximate(logp * kLog2e);
      const float direct = column == target ? dlogprob * (1.0f - p) : -dlogprob * p;
      // For an impossible token log p is -infinity and its share 0.
      return dentropy == 0 || p == 0 ? direct : direct - dentropy * p * (logp + entropy);
    }
  };
  __device__ Row row(int64_t row) const {
    return {dlogprobs[row] * inverse,
            dentropy ? dentropy[row] * inverse : 0.0f,
            lse[row],
            entropy[row],
            inverse,
            int64_t{targets[row]} - first_token};
  }
};

/// One launch of x·Wᵀ with an epilogue (Fold; Map of Probability or LogitGradient to the type of x):
/// cuda/head/product_bf16.cu, cuda/head/sm90_product.cu and cuda/head/product_f32.cu. For bf16 p is as
/// `loading` needs it.
template <typename Epilogue>
void head_product_bf16(Stream& stream, Loading loading, const Product& p, const Epilogue& epilogue);
template <typename Epilogue>
void head_product_sm90(Stream& stream, const Product& p, const Epilogue& epilogue);
template <typename Epilogue>
void head_product_f32(Stream& stream, const Product& p, const Epilogue& epilogue);

/// Parts per item of a Fold in bf16.
int64_t fold_parts(Loading loading);

}  // namespace steptrain::cuda
