// Queue, waiter, thread pool and allocator under ThreadSanitizer: `npm run test:tsan` builds and runs it. Two devices at once, each with a host
// thread that queues uploads, regions over all members and downloads on memory that it frees and takes again, drains in between, poisons its queue
// at last and stops it with work inside. One of the two finishes its reads on the waiter's thread. Values are checked, so a lost wake-up or a torn write is seen without a sanitizer too.
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/allocator.h"
#include "core/queue.h"
#include "cpu/runtime/thread_pool.h"

using namespace steptrain;

namespace {

constexpr int kRounds = 400;
constexpr int kThreads = 3;
constexpr int64_t kCount = 4096;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "threads: %s\n", what);
  std::exit(1);
}

/// A read that is told of after a while, as by a GPU.
struct Copied final : Pending {
  Copied(const TensorView& source, void* to)
      : values(source.as<int32_t>(), source.as<int32_t>() + source.numel()), to(to) {}
  void finish() override {
    if (values.size() % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::memcpy(to, values.data(), values.size() * sizeof(int32_t));
  }
  std::vector<int32_t> values;
  void* to;
};

struct Failing final : Pending {
  void finish() override { throw Error("E_RANGE", "found late"); }
};

class Memory final : public Backend {
 public:
  /// `later`: reads finish on the waiter's thread.
  explicit Memory(bool later) : later_(later) {}
  BackendInfo info() const override { return {}; }
  void* acquire(int64_t bytes) override { return std::aligned_alloc(256, static_cast<size_t>(bytes)); }
  void release(void* data, int64_t) override { std::free(data); }
  int64_t packed_bytes(const TensorView& w) const override { return w.numel(); }
  bool has(int) const override { return true; }
  void start() override { pool_ = std::make_unique<cpu::ThreadPool>(kThreads); }
  /// Op 0 adds 1 to each value, half of it by tasks and half after a barrier; op 1 fails.
  void run(int op, const Args& args) override {
    if (op == 1) throw Error("E_RANGE", "asked to fail");
    auto* values = args.tensor[0].as<int32_t>();
    const int64_t half = args.tensor[0].numel() / 2;
    pool_->region([&](cpu::Worker& worker) {
      for (int64_t i = worker.next(); i < half; i = worker.next()) values[i]++;
      worker.barrier();
      for (int64_t i = worker.next(1); i < half; i = worker.next(1)) values[half + i] = values[i];
    });
    ops_.fetch_add(1, std::memory_order_relaxed);
  }
  void upload(const TensorView& target, const void* bytes) override {
    std::memcpy(target.data, bytes, static_cast<size_t>(target.bytes()));
  }
  void download(const TensorView& source, void* bytes, const Later& later) override {
    if (later_) return later(std::make_unique<Copied>(source, bytes));
    std::memcpy(bytes, source.data, static_cast<size_t>(source.bytes()));
  }
  void signal(const Later& later) override {
    if (later_) later(std::make_unique<Failing>());
  }
  void synchronize() override {}
  Counters counters() const override { return {.ops = ops_.load(std::memory_order_relaxed)}; }

 private:
  const bool later_;
  std::unique_ptr<cpu::ThreadPool> pool_;
  std::atomic<int64_t> ops_{0};
};

struct Seen final : Completion {
  explicit Seen(std::atomic<int>& count) : count(count) {}
  void done(const Failure* failure) override { count += failure ? 1000 : 1; }
  std::atomic<int>& count;
};

/// What a wait was told, in the order of telling.
struct Told final : Completion {
  Told(std::vector<std::string>& messages, std::atomic<int>& count) : messages(messages), count(count) {}
  void done(const Failure* failure) override {
    messages.push_back(failure ? failure->message : "");
    count++;
  }
  std::vector<std::string>& messages;
  std::atomic<int>& count;
};

/// A read, a signal whose finishing fails, then an op that would fail too: what failed first is told, and later
/// reads are not begun.
void failure_found_late() {
  Queue queue(std::make_unique<Memory>(true));
  std::vector<std::string> messages;
  std::atomic<int> told{0};
  std::vector<int32_t> values(100, 7), read(100);
  const TensorView view{.data = values.data(), .shape = {100}, .rank = 1, .dtype = DType::i32};
  const auto queue_one = [&](Record::Kind kind, bool waits) {
    Record& record = queue.reserve();
    record.kind = kind;
    record.op = 1;
    record.target = view;
    record.destination = read.data();
    if (waits) record.completion = std::make_unique<Told>(messages, told);
    queue.commit();
  };
  queue_one(Record::Kind::download, true);
  queue_one(Record::Kind::signal, true);
  queue_one(Record::Kind::op, false);
  queue_one(Record::Kind::download, true);
  queue.drain();
  if (told != 3 || messages != std::vector<std::string>{"", "found late", "found late"})
    give_up("a failure that was found late was not told in order");
  if (read != values) give_up("a read before a failure was lost");
  queue.stop();
}

void one_device(bool later) {
  Queue queue(std::make_unique<Memory>(later));
  std::atomic<int> seen{0};
  {
    Allocator memory([&](int64_t bytes) { return queue.backend().acquire(bytes); },
                     [&](void* data, int64_t bytes) { queue.backend().release(data, bytes); },
                     [&] { queue.drain(); }, 64 << 20);
    std::vector<std::vector<int32_t>> results(kRounds, std::vector<int32_t>(kCount, -1));
    for (int round = 0; round < kRounds; round++) {
      const int64_t count = kCount - 2 * (round % 100);
      auto* block = memory.allocate(count * 4 * (1 + round % 3));
      const TensorView view{.data = block->data, .shape = {count}, .rank = 1, .dtype = DType::i32};
      auto& up = queue.reserve();
      up.kind = Record::Kind::upload;
      up.target = view;
      up.bytes = std::make_unique<char[]>(static_cast<size_t>(view.bytes()));
      for (int64_t i = 0; i < count; i++) reinterpret_cast<int32_t*>(up.bytes.get())[i] = round;
      queue.commit();
      auto& op = queue.reserve();
      op.kind = Record::Kind::op;
      op.op = 0;
      op.scope = queue.scope_label("round " + std::to_string(round % 7));
      op.args.tensor[0] = view;
      queue.commit();
      auto& down = queue.reserve();
      down.kind = Record::Kind::download;
      down.target = view;
      down.destination = results[static_cast<size_t>(round)].data();
      down.completion = std::make_unique<Seen>(seen);
      queue.commit();
      memory.free(block);  // the next round may be handed the same memory while this one still runs
      if (round % 50 == 17) queue.drain();
      // Idle long enough for queue and pool to fall asleep.
      if (round % 100 == 31) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    queue.drain();
    if (seen != kRounds) give_up("a completion was lost");
    for (int round = 0; round < kRounds; round++)
      for (int64_t i = 0; i < kCount - 2 * (round % 100); i++)
        if (results[static_cast<size_t>(round)][static_cast<size_t>(i)] != round + 1)
          give_up("a value is wrong");
    if (queue.backend().counters().ops != kRounds) give_up("an op was lost");
  }
  for (int i = 0; i < 600; i++) {
    auto& record = queue.reserve();
    record.kind = i == 0 ? Record::Kind::op : Record::Kind::signal;
    record.op = 1;
    if (i > 0) record.completion = std::make_unique<Seen>(seen);
    queue.commit();
  }
  queue.stop();
  if (seen != kRounds + 599 * 1000) give_up("a signal after the failure was not told of it");
}

/// Rounds over chunks as in linear_dw: tasks are taken ahead, of later chunks too, and each chunk's barriers stand between writing and reading.
/// Members sleep now and then, so that some come late, after barriers that are over, and some miss a region.
void members_come_late() {
  constexpr int64_t kChunks = 6, kTasks = 16;
  cpu::ThreadPool pool(kThreads);
  std::vector<int64_t> made(kTasks), sums(kTasks);
  for (int round = 0; round < 4 * kRounds; round++) {
    std::fill(sums.begin(), sums.end(), 0);
    pool.region([&](cpu::Worker& worker) {
      if (worker.index > 0 && round % (40 * worker.index) == 7) std::this_thread::sleep_for(std::chrono::microseconds(300));
      int64_t write = worker.next(0), read = worker.next(1);
      for (int64_t chunk = 0; chunk < kChunks; chunk++) {
        for (; write < (chunk + 1) * kTasks; write = worker.next(0)) made[write - chunk * kTasks] = write;
        worker.barrier();
        for (; read < (chunk + 1) * kTasks; read = worker.next(1)) {
          const int64_t at = read - chunk * kTasks;
          sums[at] += made[kTasks - 1 - at] + at;
        }
        worker.barrier();
      }
    });
    // Σ over chunks of (chunk·kTasks + kTasks − 1).
    for (const int64_t sum : sums) {
      if (sum != kTasks * kChunks * (kChunks - 1) / 2 + kChunks * (kTasks - 1))
        give_up("a barrier let a member through too early");
    }
    // Long enough for the members to fall asleep.
    if (round % 100 == 50) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Whichever member throws, the others do not wait for it, and the caller is told.
void a_member_throws() {
  cpu::ThreadPool pool(kThreads);
  int told = 0;
  for (int round = 0; round < kRounds; round++) {
    std::atomic<int64_t> done{0};
    try {
      pool.region([&](cpu::Worker& worker) {
        for (int64_t task; (task = worker.next(0)) < 8;) {
          if (task == round % 9) throw Error("E_RANGE", "asked to fail");
          done++;
        }
        worker.barrier();
        while (worker.next(1) < 8) done++;
      });
    } catch (const Error&) {
      told++;
    }
    if (round % 9 == 8 && done != 16) give_up("a region after one that failed was not whole");
  }
  if (told != kRounds - kRounds / 9) give_up("an exception in a region was lost");
}

}  // namespace

int main() {
  for (int i = 0; i < 5; i++) {
    std::thread first(one_device, false), second(one_device, true);
    first.join();
    second.join();
    failure_found_late();
    members_come_late();
    a_member_throws();
  }
  std::puts("queue, waiter, pool and allocator: no race");
}
