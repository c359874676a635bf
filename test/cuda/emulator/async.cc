// What Hopper does beside its threads: copies by TMA and the mbarriers that count them, products of a warpgroup, and what
// the async proxy, through which these read and write shared memory, sees of ordinary writes.
#include <cmath>
#include <utility>

#include "block.h"

namespace emulator {
namespace {

/// An mbarrier that the running thread may use.
Phases& phases_of(void* barrier) {
  const auto found = block->barriers.find(barrier);
  if (found == block->barriers.end()) forbid("an mbarrier that was not initialised");
  Phases& phases = found->second;
  if (!phases.fenced) forbid("an mbarrier whose initialisation no fence has made visible");
  if (phases.initialiser != threadIdx.x && phases.fenced_at == block->barriers_passed)
    forbid("an mbarrier before a barrier has followed its initialisation");
  return phases;
}

void end_phase_if_complete(Phases& phases) {
  if (phases.arrived < phases.arrivals || phases.pending_bytes != 0) return;
  phases.arrived = 0;
  phases.ended++;
}

/// Ends the process where something that a thread has under way still reads memory that is to be overwritten.
void refuse_over(const Fiber& fiber, const char* first, uint32_t bytes) {
  const auto within = [&](const char* at) { return at >= first && at < first + bytes; };
  const auto products = [&](const std::vector<Product>& group) {
    for (const Product& product : group)
      for (const auto& [at, then] : product.factors->read)
        if (within(at)) forbid("a copy over a factor of a product that has not been waited for");
  };
  const auto stores = [&](const std::vector<Store>& group) {
    for (const Store& store : group)
      if (within(store.box)) forbid("a copy over a box of a store that has not been waited for");
  };
  products(fiber.products);
  stores(fiber.stores);
  for (const auto& group : fiber.product_groups) products(group);
  for (const auto& group : fiber.store_groups) stores(group);
}

}  // namespace

void mbarrier_init(void* barrier, uint32_t arrivals) {
  Phases phases;
  phases.arrivals = arrivals;
  phases.initialiser = threadIdx.x;
  block->barriers[barrier] = std::move(phases);
}

void fence_barrier_init() {
  for (auto& [barrier, phases] : block->barriers) {
    if (phases.initialiser != threadIdx.x || phases.fenced) continue;
    phases.fenced = true;
    phases.fenced_at = block->barriers_passed;
  }
}

void mbarrier_arrive(void* barrier, uint32_t expected_bytes) {
  publish_fenced();
  Phases& phases = phases_of(barrier);
  if (phases.arrived == phases.arrivals) forbid("one arrival too many at an mbarrier");
  phases.pending_bytes += expected_bytes;
  phases.arrived++;
  end_phase_if_complete(phases);
}

void mbarrier_wait(void* barrier, uint32_t parity) {
  while (true) {
    Phases& phases = phases_of(barrier);
    // After an even number of phases, the last one had parity 1.
    if ((phases.ended + 1) % 2 == parity) return;
    auto& copies = phases.copies;
    for (size_t i = 0; i < copies.size();) {
      if (!block->stuck && !happens()) {
        i++;
        continue;
      }
      copies[i].second();
      phases.pending_bytes -= copies[i].first;
      copies.erase(copies.begin() + static_cast<int64_t>(i));
    }
    end_phase_if_complete(phases);
    if ((phases.ended + 1) % 2 == parity) return;
    poll("an mbarrier that nobody completes");
  }
}

void start_box(void* to, void* barrier, uint32_t bytes, std::function<void()> copy) {
  Phases& phases = phases_of(barrier);
  check_seen(to, bytes, "a copy over what was written and no fence has ordered before it");
  for (unsigned i = 0; i < block->threads; i++) refuse_over(block->fibers[i], static_cast<const char*>(to), bytes);
  auto land = [to, bytes, copy = std::move(copy)] {
    copy();
    forget_shared(to, bytes);
  };
  if (!happens()) {
    phases.copies.emplace_back(bytes, std::move(land));
    return;
  }
  land();
  phases.pending_bytes -= bytes;
  end_phase_if_complete(phases);
}

std::shared_ptr<Factors> factors_of(const std::function<void(Factors&)>& make) {
  Warp& warp = block->warps[threadIdx.x / kLanes];
  const int now = running().exchanges;
  if (warp.factors_at != now) {
    warp.factors = std::make_shared<Factors>();
    warp.factors_at = now;
    make(*warp.factors);
    for (const auto& [at, then] : warp.factors->read)
      check_seen(at, 16, "a product of what no fence and barrier have made visible to it");
  }
  return warp.factors;
}

void read_chunk(Factors& factors, const void* at) {
  const char* const from = static_cast<const char*>(at);
  auto& [place, then] = factors.read.emplace_back(from, std::array<char, 16>{});
  std::memcpy(then.data(), from, 16);
}

namespace {

constexpr uint32_t kPoison = 0x7fc0dead;

Accumulator* accumulator_of(Fiber& fiber, const float* sums) {
  for (Accumulator& one : fiber.accumulators)
    if (one.sums == sums) return &one;
  return nullptr;
}

void finish(Fiber& fiber, const Product& product) {
  if (--product.factors->left == 0) {
    for (const auto& [at, then] : product.factors->read)
      if (std::memcmp(at, then.data(), 16) != 0) forbid("a factor that changes before its product is waited for");
  }
  Accumulator& of = *accumulator_of(fiber, product.sums);
  product.add(of.values.data());
  if (--of.products > 0) return;
  for (size_t i = 0; i < of.values.size(); i++) {
    uint32_t bits;
    std::memcpy(&bits, of.sums + i, 4);
    if (bits != kPoison) forbid("sums that change before their product is waited for");
  }
  std::memcpy(of.sums, of.values.data(), 4 * of.values.size());
  std::swap(of, fiber.accumulators.back());
  fiber.accumulators.pop_back();
}

}  // namespace

void start_product(float* sums, int count, bool fresh, std::shared_ptr<Factors> factors,
                   std::function<void(float*)> add) {
  Fiber& self = running();
  Accumulator* of = accumulator_of(self, sums);
  if (!of) {
    if (!self.ordered) forbid("a product whose registers no wgmma.fence has ordered");
    of = &self.accumulators.emplace_back();
    of->sums = sums;
    of->values.assign(sums, sums + count);
    for (int i = 0; i < count; i++) std::memcpy(sums + i, &kPoison, 4);
  }
  if (of->values.size() != static_cast<size_t>(count)) forbid("products of several shapes with the same sums");
  of->products++;
  if (fresh)
    add = [count, add = std::move(add)](float* values) {
      std::fill(values, values + count, 0.0f);
      add(values);
    };
  self.products.push_back({sums, std::move(factors), std::move(add)});
}

void wgmma_fence() {
  running().ordered = true;
}

void wgmma_commit() {
  Fiber& self = running();
  self.product_groups.push_back(std::exchange(self.products, {}));
}

void wgmma_wait(int pending) {
  Fiber& self = running();
  auto& groups = self.product_groups;
  if (groups.size() > static_cast<size_t>(pending)) {
    for (bool done = happens(); !done; done = block->stuck || happens()) poll("a wait");
    while (groups.size() > static_cast<size_t>(pending)) {
      for (const Product& product : groups.front()) finish(self, product);
      groups.pop_front();
    }
    self.ordered = false;
  }
  exchange("wgmma.wait_group", nullptr, 0);  // no lane goes on before the others
}

void start_store(const void* box, int64_t bytes, std::function<void(const char*)> store) {
  check_seen(box, bytes, "a store of what no fence and barrier have made visible to it");
  const char* from = static_cast<const char*>(box);
  running().stores.push_back({from, std::vector<char>(from, from + bytes), std::move(store)});
}

void tma_store_commit() {
  Fiber& self = running();
  self.store_groups.push_back(std::exchange(self.stores, {}));
}

void tma_store_wait_read(int pending) {
  auto& groups = running().store_groups;
  if (groups.size() <= static_cast<size_t>(pending)) return;
  // At the latest, later than copies and products: only others that wait for stores are left.
  for (bool done = happens(); !done; done = block->idle > 1 || happens()) poll("a wait");
  while (groups.size() > static_cast<size_t>(pending)) {
    for (const Store& store : groups.front()) {
      if (std::memcmp(store.box, store.then.data(), store.then.size()) != 0)
        forbid("shared memory that changes while a store may read it");
      store.land(store.then.data());
    }
    groups.pop_front();
  }
}

namespace {

constexpr uint16_t kFenced = 1 << 15;

uint16_t own_mark() {
  return static_cast<uint16_t>(threadIdx.x + 1);
}

}  // namespace

void note_write(void* at, size_t bytes) {
  const int64_t first = static_cast<char*>(at) - block->shared;
  if (first < 0 || first >= static_cast<int64_t>(kSharedBytes)) return;
  Fiber& self = running();
  const auto end = static_cast<size_t>(first) + bytes;
  for (auto word = static_cast<uint32_t>(first / 4); word * size_t{4} < end && word < kSharedWords; word++) {
    uint16_t& mark = block->writers[word];
    if (mark == own_mark()) continue;
    mark = own_mark();
    self.written.push_back(word);
  }
}

void fence_proxy_async() {
  Fiber& self = running();
  for (const uint32_t word : self.written) {
    if (block->writers[word] != own_mark()) continue;
    block->writers[word] |= kFenced;
    self.fenced.push_back(word);
  }
  self.written.clear();
}

void publish_fenced() {
  Fiber& self = running();
  for (const uint32_t word : self.fenced)
    if (block->writers[word] == (own_mark() | kFenced)) block->writers[word] = 0;
  self.fenced.clear();
}

void forget_shared(const void* at, int64_t bytes) {
  const int64_t first = (static_cast<const char*>(at) - block->shared) / 4;
  for (int64_t i = 0; i < bytes / 4; i++) block->writers[static_cast<size_t>(first + i)] = 0;
}

void check_seen(const void* at, int64_t bytes, const char* what) {
  const int64_t first = (static_cast<const char*>(at) - block->shared) / 4;
  for (int64_t i = 0; i < bytes / 4; i++) {
    const uint16_t mark = block->writers[static_cast<size_t>(first + i)];
    if (mark != 0 && mark != (own_mark() | kFenced)) forbid(what);
  }
}

}  // namespace emulator
