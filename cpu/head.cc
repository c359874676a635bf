#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_head(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
