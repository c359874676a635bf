// Likelihood objectives over rows with weights: tokens (nll), classes (cross_entropy), binary labels (bce).
// Each returns the weighted sum, its gradient and statistics, in one launch (cuda/objective.cuh); all outputs
// are `=`. A row of weight 0 is not read and gets gradient 0; a non-finite one makes the loss NaN.
#include "cuda/objective.cuh"

#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

struct Nll {
  static constexpr int kSums = 1;
  const float *logprobs, *weights;
  float *loss, *gradient;

  __device__ void prepare() {}
  __device__ void operator()(int64_t i, Tally<kSums>& tally, const FaultReporter&) const {
    gradient[i] = 0;
    if (weights[i] == 0) return;
    const double weight = weights[i] + nan_unless_finite(logprobs[i]);
    gradient[i] = static_cast<float>(-weight);
    tally[0] -= weight * logprobs[i];
  }
  __device__ void finish(const Tally<kSums>& total) const { loss[0] = static_cast<float>(total[0]); }
};

/// logprobs, weights [R] -> loss [1], dlogprobs [R]
void nll(Stream& stream, const Args& args) {
  const auto [logprobs, weights, loss, dlogprobs] = args.tensors<4>();
  tally_rows(stream, logprobs[0],
             Nll{logprobs.as<float>(), weights.as<float>(), loss.as<float>(), dlogprobs.as<float>()});
}

/// The sums of a classification and what becomes of them.
enum ClassSum { kLoss, kRight, kProbability, kWeight, kRowCount, kClassSums };
__device__ inline void finish_classes(const Tally<kClassSums>& total, float* loss, float* stats) {
  loss[0] = static_cast<float>(total[kLoss]);
  stats[0] = mean_of(total[kRight], total[kWeight]);
  stats[1] = mean_of(total[kProbability], total[kWeight]);
  stats[2] = static_cast<float>(total[kWeight]);
  stats[3] = static_cast<float>(total[kRowCount]);
}

struct Bce {
  static constexpr int kSums = kClassSums;
  const float *x, *y, *w;
  float *loss, *gradient, *stats;

  __device__ void prepare() {}
  __device__ void operator()(int64_t i, Tally<kSums>& tally, const FaultReporter& faults) const {
    gradient[i] = 0;
    if (w[i] == 0) return;
    if (!(y[i] >= 0 && y[i] <= 1))
      return report(faults, FaultKind::probability, 1, i, 0, 1, __float_as_uint(y[i]));
    const double weight = w[i] + nan_unless_finite(x[i]);
    const double p = sigmoid(static_cast<double>(x[i]));
    gradient[i] = static_cast<float>(weight * (p - y[i]));
    tally[kLoss] -= weight * (y[i] * log_sigmoid(x[i]) + (1.0 - y[i]) * log_sigmoid(-x[i]));
    tally[kRight] += (x[i] >= 0) == (y[i] >= 0.5f) ? w[i] : 0;
    tally[kProbability] += weight * p;
    tally[kWeight] += w[i];
    tally[kRowCount] += 1;
  }
  __device__ void finish(const Tally<kSums>& total) const { finish_classes(total, loss, stats); }
};

/// logits, labels in [0, 1], weights [n] -> loss [1], dlogits [n], stats [4]
void bce(Stream& stream, const Args& args) {
  const auto [logits, labels, weights, loss, dlogits, stats] = args.tensors<6>();
  tally_rows(stream, logits[0],
             Bce{logits.as<float>(), labels.as<float>(), weights.as<float>(), loss.as<float>(),
                 dlogits.as<float>(), stats.as<float>()});
}

struct CrossEntropy {
  static constexpr int kSums = kClassSums;
  const float *x, *w;
  const int32_t* targets;
  int64_t classes;
  float *loss, *gradient, *stats;

  __device__ void prepare() {}
  __device__ void operator()(int64_t i, Tally<kSums>& tally, const FaultReporter& faults) const {
    const float* row = x + i * classes;
    float* drow = gradient + i * classes;
    for (int64_t c = 0; c < classes; c++) drow[c] = 0;
    if (w[i] == 0) return;
    const int64_t target = targets[i];
    if (!index_holds(faults, 1, i, target, classes)) return;
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
      if (row[c] > row[best]) best = c;
    double sum = 0, weight = w[i];
    for (int64_t c = 0; c < classes; c++) {
      sum += exp(static_cast<double>(row[c]) - row[best]);
      weight += nan_unless_finite(row[c]);
    }
    for (int64_t c = 0; c < classes; c++) {
      const double p = exp(static_cast<double>(row[c]) - row[best]) / sum;
      drow[c] = static_cast<float>(weight * (p - (c == target ? 1 : 0)));
    }
    const double logprob = static_cast<double>(row[target]) - row[best] - log(sum);
    tally[kLoss] -= weight * logprob;
    tally[kRight] += best == target ? w[i] : 0;
    tally[kProbability] += weight * exp(logprob);
    tally[kWeight] += w[i];
    tally[kRowCount] += 1;
  }
  __device__ void finish(const Tally<kSums>& total) const { finish_classes(total, loss, stats); }
};

/// logits [R,C], targets, weights [R] -> loss [1], dlogits [R,C], stats [4]
void cross_entropy(Stream& stream, const Args& args) {
  const auto [logits, targets, weights, loss, dlogits, stats] = args.tensors<6>();
  tally_rows(stream, logits[0],
             CrossEntropy{logits.as<float>(), weights.as<float>(), targets.as<int32_t>(), logits[1],
                          loss.as<float>(), dlogits.as<float>(), stats.as<float>()});
}

}  // namespace

void register_objective(KernelTable& table) {
  table.set("nll", nll);
  table.set("bce", bce);
  table.set("cross_entropy", cross_entropy);
}

}  // namespace steptrain::cuda
