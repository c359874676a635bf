#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_memory(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
