#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_mlp(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
