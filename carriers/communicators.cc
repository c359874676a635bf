#include "carriers/communicators.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "core/error.h"

namespace steptrain {
namespace {

struct Open {
  std::mutex mutex;
  std::map<int64_t, steptrain_carrier> carriers;
  int64_t last = 0;
};

Open& open() {
  // Never freed: a process may exit while a queue's thread still uses one.
  static auto& all = *new Open;
  return all;
}

}  // namespace

int64_t add_communicator(const steptrain_carrier& carrier) {
  const std::lock_guard lock(open().mutex);
  open().carriers.emplace(++open().last, carrier);
  return open().last;
}

const steptrain_carrier& communicator(int64_t id) {
  const std::lock_guard lock(open().mutex);
  const auto found = open().carriers.find(id);
  if (found == open().carriers.end())
    throw Error("E_HANDLE", format("communicator %lld is not open", static_cast<long long>(id)));
  return found->second;
}

void check_carried(const steptrain_carrier& carrier, int status, const char* op) {
  if (status == 0) return;
  throw Error("E_CLUSTER", format("%s of rank %d of %d failed: ", op, carrier.rank, carrier.size) +
                               carrier.error(carrier.self));
}

void cancel_communicator(int64_t id) {
  const std::lock_guard lock(open().mutex);
  const auto found = open().carriers.find(id);
  if (found != open().carriers.end()) found->second.cancel(found->second.self);
}

void close_communicator(int64_t id) {
  steptrain_carrier carrier;
  {
    const std::lock_guard lock(open().mutex);
    const auto found = open().carriers.find(id);
    if (found == open().carriers.end()) return;
    carrier = found->second;
    open().carriers.erase(found);
  }
  carrier.close(carrier.self);
}

steptrain_carrier open_plugin(const std::string& path) {
  // Global: components that an MPI loads look for its symbols.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) throw Error("E_CLUSTER", std::string("the plugin does not load: ") + dlerror());
  const auto function =
      reinterpret_cast<steptrain_open_carrier_function>(dlsym(library, STEPTRAIN_OPEN_CARRIER));
  if (!function) throw Error("E_CLUSTER", path + " is no plugin of steptrain");
  steptrain_carrier carrier{};
  char error[512] = "";
  if (function(&carrier, error, sizeof error) != 0) throw Error("E_CLUSTER", error);
  if (carrier.version != STEPTRAIN_CARRIER_VERSION)
    throw Error("E_CLUSTER",
                format("%s has version %d of the interface, expected %d", path.c_str(), carrier.version,
                       STEPTRAIN_CARRIER_VERSION),
                "compile it again: steptrain build --mpi");
  return carrier;
}

}  // namespace steptrain
