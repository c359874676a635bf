#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_norm(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
