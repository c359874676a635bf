#include "core/queue.h"

#include <chrono>

#include "core/glibcxx.h"
#include "core/ops.h"

namespace steptrain {
namespace {
// Waking a sleeping thread costs tens of microseconds, so an idle queue spins this long before it sleeps.
constexpr auto kSpin = std::chrono::microseconds(100);
}  // namespace

Queue::Queue(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {
  head_ = tail_ = new Chunk;
  thread_ = std::thread([this] { loop(); });
}

void Queue::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  draining_ = true;
  wake_.notify_one();
  drained_.wait(lock, [&] { return !draining_; });
}

Queue::~Queue() {
  stop();
  while (head_) {
    Chunk* next = head_->next;
    delete head_;
    head_ = next;
  }
}

Record& Queue::reserve() {
  const size_t at = tail_->written.load(std::memory_order_relaxed);
  if (at < kChunk) return tail_->records[at];
  Chunk* fresh = new Chunk;
  tail_->next.store(fresh, std::memory_order_release);
  tail_ = fresh;
  return tail_->records[0];
}

void Queue::commit() {
  tail_->written.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst)) {
    const std::lock_guard lock(mutex_);
    wake_.notify_one();
  }
}

int Queue::scope_label(const std::string& label) {
  const std::lock_guard lock(labels_mutex_);
  for (size_t i = 0; i < labels_.size(); i++) {
    if (labels_[i] == label) return static_cast<int>(i);
  }
  labels_.push_back(label);
  return static_cast<int>(labels_.size() - 1);
}

bool Queue::wait_for_work(const Chunk& chunk, size_t read) {
  const auto ready = [&] { return chunk.written.load() > read || (read == kChunk && chunk.next.load()); };
  const auto until = std::chrono::steady_clock::now() + kSpin;
  while (!ready() && !stopping_) {
    // Looked for again after draining_ was seen: nothing more is queued from then on.
    if (draining_ && !ready()) {
      settle();
      continue;
    }
    if (std::chrono::steady_clock::now() < until) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      continue;
    }
    std::unique_lock lock(mutex_);
    asleep_ = true;
    wake_.wait(lock, [&] { return ready() || stopping_ || draining_; });
    asleep_ = false;
  }
  return !stopping_;
}

/// Waits for launched work. Called when nothing is queued and the host waits.
void Queue::settle() {
  waiter_.drain();
  try {
    backend_->synchronize();
  } catch (const Error& error) {
    if (!poison_) fail(Record{}, error);
  }
  const std::lock_guard lock(mutex_);
  draining_ = false;
  drained_.notify_one();
}

void Queue::loop() {
  try {
    backend_->start();
  } catch (const Error& error) {
    fail(Record{}, error);
  }
  size_t read = 0;
  while (true) {
    if (read == kChunk) {
      Chunk* next = head_->next;
      if (next) {
        delete head_;
        head_ = next;
        read = 0;
      }
    }
    if (!wait_for_work(*head_, read)) break;
    if (read == kChunk) continue;
    execute(head_->records[read]);
    head_->records[read].clear();
    read++;
  }
  waiter_.stop();
  // Memory is freed next.
  try {
    backend_->synchronize();
  } catch (const Error&) {
    // Whoever waits learns that the device was disposed.
  }
  // Cancelled: whoever waits is told, nothing else runs.
  const Failure cancelled{"E_CANCELLED", "the device was disposed before this finished", "", "", "", "", 0};
  for (Chunk* chunk = head_; chunk; chunk = chunk->next, read = 0) {
    for (; read < chunk->written; read++) {
      Record& record = chunk->records[read];
      if (record.completion) record.completion->done(&cancelled);
      record.clear();
    }
  }
}

void Queue::execute(Record& record) {
  if (!poison_ && !waiter_.failed()) {
    try {
      run(record);
    } catch (const Error& error) {
      fail(record, error);
    } catch (const std::exception& error) {
      fail(record, Error("E_DEVICE", error.what()));
    }
  }
  if (record.completion) waiter_.add(std::move(record.completion), poison_.get());
}

void Queue::run(Record& record) {
  const auto later = [&](std::unique_ptr<Pending> pending) {
    waiter_.add(std::move(pending), origin_of(record));
  };
  switch (record.kind) {
    case Record::Kind::op:
      return backend_->run(record.op, record.args);
    case Record::Kind::upload:
      return backend_->upload(record.target, record.bytes.get());
    case Record::Kind::download:
      return backend_->download(record.target, record.destination, later);
    case Record::Kind::replay:
      return backend_->replay(*record.graph);
    case Record::Kind::signal:
      return backend_->signal(later);
  }
}

Failure Queue::origin_of(const Record& record) {
  Failure failure;
  failure.number = record.number;
  if (record.kind == Record::Kind::op && record.op >= 0)
    failure.op = ops()[static_cast<size_t>(record.op)].name;
  if (record.kind == Record::Kind::replay) failure.op = "replay";
  const std::lock_guard lock(labels_mutex_);
  failure.scope = labels_[static_cast<size_t>(record.scope)];
  return failure;
}

void Queue::fail(const Record& record, const Error& error) {
  poison_ = std::make_unique<Failure>(origin_of(record));
  poison_->explain(error);
}

}  // namespace steptrain
