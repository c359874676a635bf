// Likelihood objectives over rows with weights: tokens (nll), classes (cross_entropy), binary labels (bce).
// Each returns the weighted sum, its gradient and statistics. Rows in f64, sums in f64 and index order; all
// outputs are `=`. A row of weight 0 is not read and gets gradient 0; a non-finite one makes the loss NaN.
#include "cpu/objective.h"

#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// logprobs, weights [R] -> loss [1], dlogprobs [R]
void nll(Stream& stream, const Args& args) {
  const auto [logprobs, weights, loss, dlogprobs] = args.tensors<4>();
  const float* lp = logprobs.as<float>();
  const float* w = weights.as<float>();
  float* gradient = dlogprobs.as<float>();
  auto total = tally_rows<1>(stream, logprobs[0], [=](int64_t i, auto& tally) {
    gradient[i] = 0;
    if (w[i] == 0) return;
    const double weight = w[i] + nan_unless_finite(lp[i]);
    gradient[i] = static_cast<float>(-weight);
    tally[0] -= weight * lp[i];
  });
  loss.as<float>()[0] = static_cast<float>(total[0]);
}

/// logits, labels in [0, 1], weights [n] -> loss [1], dlogits [n], stats [4]
void bce(Stream& stream, const Args& args) {
  const auto [logits, labels, weights, loss, dlogits, stats] = args.tensors<6>();
  const float* x = logits.as<float>();
  const float* y = labels.as<float>();
  const float* w = weights.as<float>();
  float* gradient = dlogits.as<float>();
  enum { kLoss, kRight, kProbability, kWeight, kRows, kSums };
  auto total = tally_rows<kSums>(stream, logits[0], [=](int64_t i, auto& tally) {
    gradient[i] = 0;
    if (w[i] == 0) return;
    if (!(y[i] >= 0 && y[i] <= 1)) {
      throw Error("E_RANGE", format("bce: labels[%lld] is %g, expected a probability from 0 to 1",
                                    static_cast<long long>(i), static_cast<double>(y[i])));
    }
    const double weight = w[i] + nan_unless_finite(x[i]);
    const double p = sigmoid(x[i]);
    gradient[i] = static_cast<float>(weight * (p - y[i]));
    tally[kLoss] -= weight * (y[i] * log_sigmoid(x[i]) + (1.0 - y[i]) * log_sigmoid(-x[i]));
    tally[kRight] += (x[i] >= 0) == (y[i] >= 0.5f) ? w[i] : 0;
    tally[kProbability] += weight * p;
    tally[kWeight] += w[i];
    tally[kRows] += 1;
  });
  loss.as<float>()[0] = static_cast<float>(total[kLoss]);
  float* s = stats.as<float>();
  s[0] = mean_of(total[kRight], total[kWeight]);
  s[1] = mean_of(total[kProbability], total[kWeight]);
  s[2] = static_cast<float>(total[kWeight]);
  s[3] = static_cast<float>(total[kRows]);
}

/// logits [R,C], targets, weights [R] -> loss [1], dlogits [R,C], stats [4]
void cross_entropy(Stream& stream, const Args& args) {
  const auto [logits, targets, weights, loss, dlogits, stats] = args.tensors<6>();
  const int64_t classes = logits[1];
  const float* x = logits.as<float>();
  const int32_t* target = targets.as<int32_t>();
  const float* w = weights.as<float>();
  float* gradient = dlogits.as<float>();
  enum { kLoss, kRight, kProbability, kWeight, kRows, kSums };
  auto total = tally_rows<kSums>(stream, logits[0], [=](int64_t i, auto& tally) {
    const float* row = x + i * classes;
    float* drow = gradient + i * classes;
    std::fill(drow, drow + classes, 0.0f);
    if (w[i] == 0) return;
    if (target[i] < 0 || target[i] >= classes) {
      throw Error("E_RANGE",
                  format("cross_entropy: targets[%lld] is %d, outside 0..%lld", static_cast<long long>(i),
                         target[i], static_cast<long long>(classes - 1)));
    }
    const float* best = std::max_element(row, row + classes);
    double sum = 0, weight = w[i];
    for (int64_t c = 0; c < classes; c++) {
      sum += std::exp(static_cast<double>(row[c]) - *best);
      weight += nan_unless_finite(row[c]);
    }
    for (int64_t c = 0; c < classes; c++) {
      const double p = std::exp(static_cast<double>(row[c]) - *best) / sum;
      drow[c] = static_cast<float>(weight * (p - (c == target[i] ? 1 : 0)));
    }
    const double logprob = static_cast<double>(row[target[i]]) - *best - std::log(sum);
    tally[kLoss] -= weight * logprob;
    tally[kRight] += best - row == target[i] ? w[i] : 0;
    tally[kProbability] += weight * std::exp(logprob);
    tally[kWeight] += w[i];
    tally[kRows] += 1;
  });
  loss.as<float>()[0] = static_cast<float>(total[kLoss]);
  float* s = stats.as<float>();
  s[0] = mean_of(total[kRight], total[kWeight]);
  s[1] = mean_of(total[kProbability], total[kWeight]);
  s[2] = static_cast<float>(total[kWeight]);
  s[3] = static_cast<float>(total[kRows]);
}

}  // namespace

void register_objective(KernelTable& table) {
  table.set("nll", nll);
  table.set("bce", bce);
  table.set("cross_entropy", cross_entropy);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
