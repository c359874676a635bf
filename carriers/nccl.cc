#include "carriers/nccl.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <memory>

#include "core/error.h"

namespace steptrain {
namespace {

// As nccl.h of 2.18 and later has them; what these functions take has not changed since 2.7.
struct Comm;
struct UniqueId {
  char internal[128];
};
using Result = int;  // 0: success; 7: in progress
constexpr int kUint8 = 1;
constexpr int kLeast = 21800;

struct Nccl {
  void* library = nullptr;
  int version = 0;
  Result (*GetVersion)(int*);
  Result (*GetUniqueId)(UniqueId*);
  Result (*CommInitRank)(Comm**, int size, UniqueId, int rank);
  Result (*CommDestroy)(Comm*);
  Result (*CommAbort)(Comm*);
  Result (*CommGetAsyncError)(Comm*, Result*);
  Result (*GroupStart)();
  Result (*GroupEnd)();
  Result (*Send)(const void*, size_t, int type, int peer, Comm*, void* stream);
  Result (*Recv)(void*, size_t, int type, int peer, Comm*, void* stream);
  Result (*AllGather)(const void*, void*, size_t, int type, Comm*, void* stream);
  const char* (*GetErrorString)(Result);
  const char* (*GetLastError)(Comm*);
};

std::string shown_version(int version) {
  return format("%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

std::shared_ptr<const Nccl> load(const std::string& path) {
  const std::string name = path.empty() ? "libnccl.so.2" : path;
  auto nccl = std::make_shared<Nccl>();
  nccl->library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!nccl->library)
    throw Error("E_CLUSTER", std::string("NCCL does not load: ") + dlerror(),
                "install libnccl2, or take run.collectives: tcp");
  const auto find = [&](auto& function, const char* symbol) {
    using Function = std::remove_reference_t<decltype(function)>;
    function = reinterpret_cast<Function>(dlsym(nccl->library, symbol));
    if (!function) throw Error("E_CLUSTER", name + " has no " + symbol + ", so it is no NCCL that fits");
  };
  find(nccl->GetVersion, "ncclGetVersion");
  find(nccl->GetErrorString, "ncclGetErrorString");
  if (nccl->GetVersion(&nccl->version) != 0) throw Error("E_CLUSTER", name + " does not tell its version");
  if (nccl->version < kLeast)
    throw Error("E_CLUSTER", name + " is NCCL " + shown_version(nccl->version) + ", expected " +
                                 shown_version(kLeast) + " or newer");
  find(nccl->GetLastError, "ncclGetLastError");
  find(nccl->GetUniqueId, "ncclGetUniqueId");
  find(nccl->CommInitRank, "ncclCommInitRank");
  find(nccl->CommDestroy, "ncclCommDestroy");
  find(nccl->CommAbort, "ncclCommAbort");
  find(nccl->CommGetAsyncError, "ncclCommGetAsyncError");
  find(nccl->GroupStart, "ncclGroupStart");
  find(nccl->GroupEnd, "ncclGroupEnd");
  find(nccl->Send, "ncclSend");
  find(nccl->Recv, "ncclRecv");
  find(nccl->AllGather, "ncclAllGather");
  return nccl;
}

std::string explained(const Nccl& nccl, Comm* comm, Result result, const char* what) {
  const char* last = nccl.GetLastError(comm);
  return std::string(what) + ": " + nccl.GetErrorString(result) + (last && *last ? " (" : "") +
         (last ? last : "") + (last && *last ? ")" : "");
}

struct Rank {
  std::shared_ptr<const Nccl> nccl;
  Comm* comm = nullptr;
  int size = 1;
  std::atomic<bool> cancelled{false};
  std::string error;

  int check(Result result, const char* what) {
    if (cancelled) {
      error = "it was cancelled, since a process of the job was lost";
      return 1;
    }
    if (result == 0) return 0;
    error = explained(*nccl, comm, result, what);
    return 1;
  }
  /// What an earlier collective failed with, on the device.
  int healthy() {
    Result state = 0;
    if (cancelled) return check(0, "");
    return check(nccl->CommGetAsyncError(comm, &state), "ncclCommGetAsyncError") ||
           check(state, "an earlier collective");
  }
};

Rank& of(void* self) {
  return *static_cast<Rank*>(self);
}

int all_to_all(void* self, const void* from, void* to, size_t bytes, void* stream) {
  Rank& own = of(self);
  const Nccl& nccl = *own.nccl;
  if (own.healthy() || own.check(nccl.GroupStart(), "ncclGroupStart")) return 1;
  int failed = 0;
  for (int r = 0; r < own.size && !failed; r++) {
    const size_t at = static_cast<size_t>(r) * bytes;
    failed =
        own.check(nccl.Send(static_cast<const char*>(from) + at, bytes, kUint8, r, own.comm, stream),
                  "ncclSend") ||
        own.check(nccl.Recv(static_cast<char*>(to) + at, bytes, kUint8, r, own.comm, stream), "ncclRecv");
  }
  // A group that was opened is closed in any case.
  const Result ended = nccl.GroupEnd();
  return failed || own.check(ended, "ncclGroupEnd");
}

int all_gather(void* self, const void* from, void* to, size_t bytes, void* stream) {
  Rank& own = of(self);
  if (own.healthy()) return 1;
  return own.check(own.nccl->AllGather(from, to, bytes, kUint8, own.comm, stream), "ncclAllGather");
}

void cancel(void* self) {
  if (!of(self).cancelled.exchange(true)) of(self).nccl->CommAbort(of(self).comm);
}

void close(void* self) {
  if (!of(self).cancelled) of(self).nccl->CommDestroy(of(self).comm);
  delete static_cast<Rank*>(self);
}

const char* error_of(void* self) {
  return of(self).error.c_str();
}

}  // namespace

NcclId nccl_id(const std::string& library) {
  const auto nccl = load(library);
  UniqueId id;
  const Result result = nccl->GetUniqueId(&id);
  if (result != 0) throw Error("E_CLUSTER", explained(*nccl, nullptr, result, "ncclGetUniqueId"));
  NcclId bytes;
  std::memcpy(bytes.data(), id.internal, bytes.size());
  return bytes;
}

steptrain_carrier open_nccl(const std::string& library, const NcclId& id, int rank, int size) {
  auto own = std::make_unique<Rank>();
  own->nccl = load(library);
  own->size = size;
  UniqueId unique;
  std::memcpy(unique.internal, id.data(), id.size());
  const Result result = own->nccl->CommInitRank(&own->comm, size, unique, rank);
  if (result != 0) throw Error("E_CLUSTER", explained(*own->nccl, nullptr, result, "ncclCommInitRank"));
  return {STEPTRAIN_CARRIER_VERSION,
          rank,
          size,
          own.release(),
          all_to_all,
          all_gather,
          nullptr,
          cancel,
          close,
          error_of};
}

}  // namespace steptrain
