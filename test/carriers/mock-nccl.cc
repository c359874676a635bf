// A library with NCCL's functions, whose ranks are threads of one process and whose memory is the host's. It checks what it is
// called with, writes each call into the file MOCK_NCCL_LOG, and fails where MOCK_NCCL_FAIL names a function. A collective takes as
// many milliseconds as MOCK_NCCL_DELAY says, or runs in the stream that it is given where that is one of the emulated GPU's: there the
// world is one rank, which waits for nobody.
#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0, came = 0;
  bool aborted = false;
  /// By sender and receiver, what lies there to be received.
  std::map<std::pair<int, int>, std::vector<std::vector<char>>> mail;
};

struct Call {
  bool sends;
  const void* from;
  void* to;
  size_t count;
  int peer;
};

struct Comm {
  World* world;
  int rank;
};

std::mutex worlds_mutex;
std::map<std::string, World*> worlds;
int ids = 0;
thread_local bool grouped = false;
thread_local std::vector<Call> group;
thread_local Comm* group_comm = nullptr;
thread_local void* group_stream = nullptr;

int logged(const char* name, int rank, size_t count, int type, int peer) {
  if (const char* path = std::getenv("MOCK_NCCL_LOG")) {
    if (FILE* file = std::fopen(path, "a")) {
      std::fprintf(file, "%d %s %zu %d %d\n", rank, name, count, type, peer);
      std::fclose(file);
    }
  }
  const char* fails = std::getenv("MOCK_NCCL_FAIL");
  return fails && std::string(fails) == name ? 3 : 0;
}

int deliver(Comm* comm, const std::vector<Call>& calls) {
  if (const char* delay = std::getenv("MOCK_NCCL_DELAY"))
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(delay)));
  World& world = *comm->world;
  std::unique_lock lock(world.mutex);
  for (const Call& call : calls) {
    if (!call.sends) continue;
    const char* from = static_cast<const char*>(call.from);
    world.mail[{comm->rank, call.peer}].emplace_back(from, from + call.count);
  }
  world.changed.notify_all();
  for (const Call& call : calls) {
    if (call.sends) continue;
    auto& box = world.mail[{call.peer, comm->rank}];
    world.changed.wait(lock, [&] { return world.aborted || !box.empty(); });
    if (world.aborted) return 6;
    if (box.front().size() != call.count) return 4;
    std::memcpy(call.to, box.front().data(), call.count);
    box.erase(box.begin());
  }
  return 0;
}

struct Queued {
  Comm* comm;
  std::vector<Call> calls;
};

/// The emulator's function, which the addon that it is has.
auto* emulated_queue() {
  using Function = void(void* stream, void (*run)(void*), void* with);
  const char* path = std::getenv("STEPTRAIN_ADDON");
  void* addon = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  return addon ? reinterpret_cast<Function*>(dlsym(addon, "emulated_queue")) : nullptr;
}

int deliver_in(void* stream, Comm* comm, std::vector<Call> calls) {
  if (!stream) return deliver(comm, calls);
  auto* const queue = emulated_queue();
  if (!queue || comm->world->size != 1) return 4;
  const auto run = [](void* with) {
    const std::unique_ptr<Queued> queued(static_cast<Queued*>(with));
    deliver(queued->comm, queued->calls);
  };
  queue(stream, run, new Queued{comm, std::move(calls)});
  return 0;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

struct UniqueId {
  char internal[128];
};

API int ncclGetVersion(int* version) {
  const char* wanted = std::getenv("MOCK_NCCL_VERSION");
  *version = wanted ? std::atoi(wanted) : 22304;
  return 0;
}
API const char* ncclGetErrorString(int code) {
  return code == 3 ? "internal error" : code == 4 ? "invalid argument" : code == 6 ? "remote process exited" : "no error";
}
API const char* ncclGetLastError(Comm*) {
  return std::getenv("MOCK_NCCL_FAIL") ? "so the test wants it" : "";
}
API int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 7, sizeof *id);
  std::lock_guard lock(worlds_mutex);
  std::snprintf(id->internal, sizeof id->internal, "world %d", ++ids);
  return logged("ncclGetUniqueId", -1, 0, 0, 0);
}
API int ncclCommInitRank(Comm** comm, int size, UniqueId id, int rank) {
  if (int failed = logged("ncclCommInitRank", rank, static_cast<size_t>(size), 0, 0)) return failed;
  World* world;
  {
    std::lock_guard lock(worlds_mutex);
    auto& found = worlds[id.internal];
    if (!found) found = new World;
    world = found;
  }
  std::unique_lock lock(world->mutex);
  world->size = size;
  world->came++;
  world->changed.notify_all();
  world->changed.wait(lock, [&] { return world->came == size; });
  *comm = new Comm{world, rank};
  return 0;
}
API int ncclCommDestroy(Comm* comm) {
  return logged("ncclCommDestroy", comm->rank, 0, 0, 0);
}
API int ncclCommAbort(Comm* comm) {
  {
    std::lock_guard lock(comm->world->mutex);
    comm->world->aborted = true;
  }
  comm->world->changed.notify_all();
  return logged("ncclCommAbort", comm->rank, 0, 0, 0);
}
API int ncclCommGetAsyncError(Comm*, int* state) {
  *state = 0;
  return 0;
}
API int ncclGroupStart() {
  grouped = true;
  return logged("ncclGroupStart", -1, 0, 0, 0);
}
API int ncclGroupEnd() {
  grouped = false;
  const auto calls = std::move(group);
  group.clear();
  if (int failed = logged("ncclGroupEnd", -1, 0, 0, 0)) return failed;
  return calls.empty() ? 0 : deliver_in(group_stream, group_comm, calls);
}
API int ncclSend(const void* from, size_t count, int type, int peer, Comm* comm, void* stream) {
  if (!grouped || type != 1) return 4;
  group_comm = comm;
  group_stream = stream;
  group.push_back({true, from, nullptr, count, peer});
  return logged("ncclSend", comm->rank, count, type, peer);
}
API int ncclRecv(void* to, size_t count, int type, int peer, Comm* comm, void*) {
  if (!grouped || type != 1) return 4;
  group_comm = comm;
  group.push_back({false, nullptr, to, count, peer});
  return logged("ncclRecv", comm->rank, count, type, peer);
}
API int ncclAllGather(const void* from, void* to, size_t count, int type, Comm* comm, void* stream) {
  if (type != 1) return 4;
  if (int failed = logged("ncclAllGather", comm->rank, count, type, 0)) return failed;
  std::vector<Call> calls;
  for (int r = 0; r < comm->world->size; r++) calls.push_back({true, from, nullptr, count, r});
  for (int r = 0; r < comm->world->size; r++)
    calls.push_back({false, nullptr, static_cast<char*>(to) + static_cast<size_t>(r) * count, count, r});
  return deliver_in(stream, comm, calls);
}
