#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_advantage(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
