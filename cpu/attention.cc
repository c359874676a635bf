#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_attention(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
