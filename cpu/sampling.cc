#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_sampling(KernelTable&) {}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
