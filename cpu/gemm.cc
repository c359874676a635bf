#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_gemm(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
