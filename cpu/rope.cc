#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_rope(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
