#include "cpu/gemm.h"

#include "cpu/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void register_gemm(KernelTable& table) {
  table.packed_bytes = packed_bytes;
  table.set("pack_weight", pack_weight);
  table.set("unpack_weight", unpack_weight);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
