// The ops of the gemm family, one file each.
#pragma once

#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void pack_weight(Stream& stream, const Args& args);
void unpack_weight(Stream& stream, const Args& args);
void linear(Stream& stream, const Args& args);
void linear_swiglu(Stream& stream, const Args& args);
void linear_dx(Stream& stream, const Args& args);
void linear_dw(Stream& stream, const Args& args);
void lora_grads(Stream& stream, const Args& args);
int64_t packed_bytes(DType dtype, int64_t n, int64_t k);

}  // namespace steptrain::cpu::STEPTRAIN_ISA
