// The factors between natural logarithms and those to base 2, which GPUs compute.
#pragma once

namespace steptrain::cuda {

constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

}  // namespace steptrain::cuda
