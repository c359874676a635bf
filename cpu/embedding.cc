#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_embedding(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
