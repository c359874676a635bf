#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_optimizer(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
