// The CPU device: picks the instruction set at run time and runs records on the pool.
#include "cpu/runtime/backend.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define STEPTRAIN_ISA portable
#include "cpu/runtime/families.h"
#undef STEPTRAIN_ISA
#include "core/ops.h"

// STEPTRAIN_ISAS: the sets of this build, as F(avx2) F(portable).
namespace steptrain::cpu {
#define F(isa)                  \
  namespace isa {               \
  const KernelTable& kernels(); \
  }
STEPTRAIN_ISAS
#undef F

KernelTable::KernelTable() : kernels_(ops().size(), nullptr) {}

void KernelTable::set(const std::string& op, Kernel kernel) {
  const int index = op_index(op);
  if (index < 0) throw Error("E_RANGE", "a kernel is registered for an op that is not in the list: " + op);
  kernels_[static_cast<size_t>(index)] = kernel;
}

void Scratch::grow(int64_t bytes) {
  if (block_ && used_ > 0) outgrown_.push_back(std::move(block_));
  block_bytes_ = std::max(bytes, 2 * block_bytes_);
  block_.reset(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(block_bytes_))));
  if (!block_)
    throw Error("E_MEMORY", format("no memory for %lld bytes of workspace", static_cast<long long>(bytes)));
  used_ = 0;
}

void Scratch::reset() {
  if (!outgrown_.empty()) {
    // One block large enough for all of it, so that the next op of this size needs no other.
    outgrown_.clear();
    block_.reset();
    block_bytes_ = 0;
    used_ = 0;
    grow(held_);
  }
  used_ = held_ = 0;
}

namespace {

#if defined(__x86_64__)
/// Whether the processor has AMX for bf16 and Linux (5.16 or newer) lets this process have tile registers.
bool amx_usable() {
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  if ((edx & (kBf16 | kTile)) != (kBf16 | kTile)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

/// Sets that this processor runs, whether built or not, best first.
std::vector<std::string> processor_isas() {
  std::vector<std::string> isas;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  if (bf16 && amx_usable()) isas.emplace_back("amx");
  if (bf16) isas.emplace_back("avx512bf16");
  if (avx512) isas.emplace_back("avx512");
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.emplace_back("avx2");
#elif defined(__aarch64__)
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16, which older headers of Linux do not name
  if (getauxval(AT_HWCAP2) & kBf16) isas.emplace_back("neonbf16");
  isas.emplace_back("neon");
#endif
  isas.emplace_back("portable");
  return isas;
}

using Table = const KernelTable& (*)();

/// Null where this build has no such set.
Table table_of(const std::string& isa) {
#define F(name) \
  if (isa == #name) return name::kernels;
  STEPTRAIN_ISAS
#undef F
  return nullptr;
}

std::vector<std::string> isas_where(bool built) {
  std::vector<std::string> isas;
  for (auto& isa : processor_isas())
    if ((table_of(isa) != nullptr) == built) isas.push_back(std::move(isa));
  return isas;
}

std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

/// Linux tells an ARM processor's maker and part alone; these are of servers (Arm's own "Main ID Register" values).
std::string arm_processor(const std::string& part) {
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"0xd0c", "Neoverse N1"}, {"0xd40", "Neoverse V1"}, {"0xd49", "Neoverse N2"}, {"0xd4f", "Neoverse V2"},
      {"0xd83", "Neoverse V3"}, {"0xd8e", "Neoverse N3"}, {"0xd85", "Cortex-X925"}, {"0xd87", "Cortex-A725"},
  };
  for (const auto& [number, name] : kParts)
    if (part == number) return name;
  return "ARM, part " + part;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto value = [&] { return line.substr(line.find(':') + 2); };
    if (line.rfind("model name", 0) == 0) return value();
    if (line.rfind("CPU part", 0) == 0) return arm_processor(value());
  }
  return "CPU";
}

/// Segments are whole huge pages: reading weights from them is about a tenth faster than from pages of 4 KiB.
constexpr size_t kHugePage = size_t{2} << 20;

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, const std::string& isa)
      : table_(table_of(isa)()), isa_(isa), threads_(threads), processor_(processor()) {}

  BackendInfo info() const override {
    const int64_t page = sysconf(_SC_PAGESIZE);
    return {
        "cpu", processor_, isa_, threads_, sysconf(_SC_PHYS_PAGES) * page, sysconf(_SC_AVPHYS_PAGES) * page};
  }
  void* acquire(int64_t bytes) override {
    void* const data = std::aligned_alloc(kHugePage, static_cast<size_t>(bytes));
    if (data) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return data;
  }
  void release(void* data, int64_t) override { std::free(data); }
  int64_t packed_bytes(const TensorView& weight) const override { return table_.packed_bytes(weight); }
  bool has(int op) const override { return table_.at(op) != nullptr; }

  void start() override { pool_ = std::make_unique<ThreadPool>(threads_); }
  void run(int op, const Args& args) override {
    using Clock = std::chrono::steady_clock;
    Stream stream{*pool_, scratch_, beside_};
    const auto began = Clock::now();
    table_.at(op)(stream, args);
    nanoseconds_ += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
    scratch_.reset();
    ops_++;
  }
  void upload(const TensorView& target, const void* bytes) override {
    std::memcpy(target.data, bytes, static_cast<size_t>(target.bytes()));
  }
  void download(const TensorView& source, void* bytes, const Later&) override {
    if (source.bytes() > 0) std::memcpy(bytes, source.data, static_cast<size_t>(source.bytes()));
  }
  void synchronize() override { beside_.wait(); }
  Counters counters() const override {
    return {ops_, pool_ ? pool_->regions() : 0, scratch_.peak(), 0, 1e-9 * static_cast<double>(nanoseconds_)};
  }

 private:
  const KernelTable& table_;
  std::string isa_;
  int threads_;
  std::string processor_;
  std::unique_ptr<ThreadPool> pool_;
  Scratch scratch_;
  Beside beside_;
  std::atomic<int64_t> ops_{0}, nanoseconds_{0};
};

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

std::vector<std::string> available_isas() {
  return isas_where(true);
}

std::vector<std::string> unbuilt_isas() {
  return isas_where(false);
}

std::unique_ptr<Backend> make_backend(int threads, const std::string& isa) {
  const auto offered = available_isas(), unbuilt = unbuilt_isas();
  const std::string chosen = isa.empty() ? offered.front() : isa;
  const auto among = [&](const auto& isas) {
    return std::find(isas.begin(), isas.end(), chosen) != isas.end();
  };
  if (!among(offered))
    throw Error("E_UNSUPPORTED",
                "STEPTRAIN_ISA is '" + chosen + "', but this processor and build offer " + listed(offered) +
                    (among(unbuilt) ? "; every set is compiled by: npx steptrain build --all" : ""));
  return std::make_unique<CpuBackend>(threads > 0 ? threads : usable_cores(), chosen);
}

}  // namespace steptrain::cpu
