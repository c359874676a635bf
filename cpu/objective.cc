#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_objective(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
