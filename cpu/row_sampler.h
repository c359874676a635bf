// One row of logits on its way to a token. Nothing is sorted: without filters, the mass of each tile of the
// vocabulary is summed; the draw finds the tile, then the token in it. With filters, candidates above a lower
// bound of the threshold are gathered, and the exact threshold is found among them by selection. Log-probs
// without filters have the bits of head_logprobs: the same tiles and splits in the same order.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

#include "cpu/head/tile.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Tokens that share one stored maximum, so that a gathering pass can skip them together.
constexpr int64_t kSkip = 64;
/// How far the shift may fall behind the maximum, as in head/softmax.h.
constexpr float kSlack = 8.0f;

struct Warp {
  double temperature = 1;
  int64_t top_k = 0;  // 0: off
  double top_p = 1, min_p = 0;

  float inverse() const { return 1 / static_cast<float>(temperature); }
  bool filters(int64_t vocabulary) const {
    return (top_k > 0 && top_k < vocabulary) || top_p < 1 || min_p > 0;
  }
};

/// Online softmax of one row: exp(shift) · sum is Σ exp(logit / temperature).
struct Softmax {
  float shift = kPadding;
  float sum = 0;

  void rebase(float to) {
    sum *= std::exp(shift - to);
    shift = to;
  }
  float logprob(float logit, float inverse) const { return logit * inverse - shift - std::log(sum); }
};

/// A vector of logits, `past` beyond the end of the row.
inline vf load_logits(const float* p, int lanes, float past = -INFINITY) {
  if (lanes == kLanes) return load(p);
  float padded[kLanes];
  std::fill(padded, padded + kLanes, past);
  std::copy(p, p + lanes, padded);
  return load(padded);
}

inline Softmax softmax(const float* row, int64_t vocabulary, float inverse) {
  Softmax all;
  for (int64_t split = 0; split < vocabulary; split += kSplitTokens) {
    Softmax part;
    const int64_t split_end = std::min(vocabulary, split + kSplitTokens);
    for (int64_t tile = split; tile < split_end; tile += kTileTokens) {
      const int64_t end = std::min(split_end, tile + kTileTokens);
      vf maxima = set1(kPadding), sums = zero();
      each_vector(tile, end,
                  [&](int64_t i, int lanes) { maxima = max(maxima, load_logits(row + i, lanes, kPadding)); });
      const float largest = max(maxima) * inverse;
      if (largest > part.shift + kSlack) part.rebase(largest);
      const vf scale = set1(inverse), shift = set1(part.shift);
      each_vector(tile, end, [&](int64_t i, int lanes) {
        sums = sums + exp(fma(load_logits(row + i, lanes, kPadding), scale, zero() - shift));
      });
      part.sum += sum(sums);
    }
    if (split == 0) {
      all = part;
      continue;
    }
    if (part.shift > all.shift) {
      all.rebase(part.shift);
    } else {
      part.rebase(all.shift);
    }
    all.sum += part.sum;
  }
  return all;
}

struct Candidate {
  float logit;
  int32_t token;
  double mass;  // relative to that of the most likely token

  bool ranks_before(const Candidate& other) const {
    return logit > other.logit || (logit == other.logit && token < other.token);
  }
};

/// SamplerWorkspace of one thread.
struct SamplerWorkspace {
  float* peaks;      // [V / kSkip] largest logit of each stretch
  double* masses;    // [V / kTileTokens]
  float* selection;  // [V], used to select
  Candidate* candidates;
  Candidate* ranked;
  float* adjusted;  // [V], a row's logits after biases and allowed tokens
};

class RowSampler {
 public:
  RowSampler(const float* row, int64_t vocabulary, const Warp& warp, const SamplerWorkspace& work)
      : row_(row), vocabulary_(vocabulary), warp_(&warp), work_(&work) {}

  /// Finds the largest logit. False where one is NaN or +infinity, or all are -infinity.
  bool scan() {
    vf all = set1(-INFINITY), broken = zero();
    for (int64_t begin = 0; begin < vocabulary_; begin += kSkip) {
      vf maxima = set1(-INFINITY);
      each_vector(begin, std::min(vocabulary_, begin + kSkip), [&](int64_t i, int lanes) {
        const vf logits = load_logits(row_ + i, lanes);
        maxima = max(maxima, logits);
        broken = broken + select_less(logits, set1(INFINITY), zero(), set1(1.0f));
      });
      all = max(all, maxima);
      if (work_->peaks) work_->peaks[begin / kSkip] = max(maxima);
    }
    largest_ = max(all);
    return sum(broken) == 0 && largest_ > -INFINITY;
  }

  /// The most likely token, the first among equals.
  int32_t most_likely() const {
    return static_cast<int32_t>(std::find(row_, row_ + vocabulary_, largest_) - row_);
  }

  /// The token at `u` in [0, 1) of the distribution without filters.
  int32_t draw(double u) const {
    const double target = u * weigh_tiles();
    double before = 0;
    int64_t tile = 0;
    for (const int64_t last = (vocabulary_ - 1) / kTileTokens; tile < last; tile++) {
      if (before + work_->masses[tile] > target) break;
      before += work_->masses[tile];
    }
    const int64_t begin = tile * kTileTokens, end = std::min(vocabulary_, begin + kTileTokens);
    int64_t drawn = -1;
    float mass[kLanes];
    for (int64_t i = begin; i < end; i += kLanes) {
      const int lanes = static_cast<int>(std::min<int64_t>(kLanes, end - i));
      store(mass, mass_of(i, lanes));
      for (int lane = 0; lane < lanes; lane++) {
        if (mass[lane] == 0) continue;
        drawn = i + lane;
        before += mass[lane];
        if (before > target) return static_cast<int32_t>(drawn);
      }
    }
    // Reached if rounding made the mass of the tile larger than the sum over its tokens.
    return drawn < 0 ? most_likely() : static_cast<int32_t>(drawn);
  }

  /// Gathers the tokens that the filters leave.
  void filter() {
    if (warp_->top_k > 0 && warp_->top_k < vocabulary_) {
      keep_top_k();
    } else if (warp_->top_p < 1) {
      gather_nucleus();
    } else {
      // A bound lower by 1, so that rounding loses no token; the exact test follows.
      gather_above(largest_ + static_cast<float>((std::log(warp_->min_p) - 1) * warp_->temperature));
    }
    if (warp_->top_p < 1) keep_top_p();
    if (warp_->min_p > 0) keep([&](const Candidate& c) { return c.mass >= warp_->min_p; });
  }

  /// The token at `u` of the filtered distribution, and its log-probability there.
  int32_t draw_filtered(double u, float& logprob) const {
    const double total = mass();
    double before = 0;
    const Candidate* drawn = nullptr;
    for (int64_t i = 0; i < count_ && before <= u * total; i++) {
      if (work_->candidates[i].mass == 0) continue;
      drawn = &work_->candidates[i];
      before += drawn->mass;
    }
    logprob = static_cast<float>(scaled(drawn->logit) - std::log(total));
    return drawn->token;
  }

 private:
  double scaled(float logit) const { return (static_cast<double>(logit) - largest_) / warp_->temperature; }
  vf mass_of(int64_t i, int lanes) const {
    return exp((load_logits(row_ + i, lanes) - set1(largest_)) * set1(warp_->inverse()));
  }

  double weigh_tiles() const {
    double total = 0;
    for (int64_t begin = 0; begin < vocabulary_; begin += kTileTokens) {
      vf sums = zero();
      each_vector(begin, std::min(vocabulary_, begin + kTileTokens),
                  [&](int64_t i, int lanes) { sums = sums + mass_of(i, lanes); });
      total += work_->masses[begin / kTileTokens] = sum(sums);
    }
    return total;
  }

  void gather_above(float bound) {
    count_ = 0;
    for (int64_t begin = 0; begin < vocabulary_; begin += kSkip) {
      if (!(work_->peaks[begin / kSkip] >= bound)) continue;
      for (int64_t v = begin, end = std::min(vocabulary_, begin + kSkip); v < end; v++) {
        if (row_[v] >= bound)
          work_->candidates[count_++] = {row_[v], static_cast<int32_t>(v), std::exp(scaled(row_[v]))};
      }
    }
  }

  /// Keeps candidates in order of the vocabulary.
  template <typename Predicate>
  void keep(const Predicate& predicate) {
    count_ = std::copy_if(work_->candidates, work_->candidates + count_, work_->candidates, predicate) -
             work_->candidates;
  }

  double mass() const {
    double total = 0;
    for (int64_t i = 0; i < count_; i++) total += work_->candidates[i].mass;
    return total;
  }

  /// Keeps the candidates that are not below the k-th largest; its equals stay, as in TopKLogitsWarper.
  void keep_top_k() {
    // k stretches have peaks of at least the k-th largest peak, so no logit below it is among the k largest.
    const int64_t stretches = (vocabulary_ + kSkip - 1) / kSkip, k = warp_->top_k;
    const auto select = [&](int64_t n) {
      std::nth_element(work_->selection, work_->selection + k - 1, work_->selection + n,
                       std::greater<float>());
      return work_->selection[k - 1];
    };
    float bound = -INFINITY;
    if (stretches >= k) {
      std::copy(work_->peaks, work_->peaks + stretches, work_->selection);
      bound = select(stretches);
    }
    gather_above(bound);
    for (int64_t i = 0; i < count_; i++) work_->selection[i] = work_->candidates[i].logit;
    const float threshold = select(count_);
    keep([&](const Candidate& c) { return c.logit >= threshold; });
  }

  /// Gathers candidates from ever further below the maximum, until they hold more than top_p of the mass.
  void gather_nucleus() {
    total_ = weigh_tiles();
    for (const double depth : {8.0, 16.0}) {
      gather_above(largest_ - static_cast<float>(depth * warp_->temperature));
      if (mass() > warp_->top_p * total_) return;
    }
    gather_above(-INFINITY);
  }

  /// Keeps a token if the more likely ones hold less than top_p of the mass, as in TopPLogitsWarper; among
  /// equals the first come first.
  void keep_top_p() {
    const double limit = warp_->top_p * (total_ > 0 ? total_ : mass());
    Candidate* const begin = work_->ranked;
    Candidate *first = begin, *last = begin + count_;
    std::copy(work_->candidates, work_->candidates + count_, begin);
    // The last token kept is in [first, last); those before `first` have the mass `before` < limit.
    double before = 0;
    while (last - first > 1) {
      Candidate* const middle = first + (last - first) / 2;
      std::nth_element(first, middle, last,
                       [](const Candidate& a, const Candidate& b) { return a.ranks_before(b); });
      double upper = 0;
      for (const Candidate* c = first; c < middle; c++) upper += c->mass;
      if (before + upper >= limit) {
        last = middle;
      } else {
        before += upper;
        first = middle;
      }
    }
    const Candidate boundary = *first;
    keep([&](const Candidate& c) { return !boundary.ranks_before(c); });
  }

  const float* row_;
  int64_t vocabulary_;
  const Warp* warp_;
  const SamplerWorkspace* work_;
  float largest_ = 0;
  int64_t count_ = 0;
  double total_ = 0;  // mass of the whole vocabulary, where the nucleus was gathered from it
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
