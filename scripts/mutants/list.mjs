// One-line errors in the CUDA kernels, each of which some test on the emulator must find: `name`, the line `from` of `file`, which
// occurs once (with its neighbours where it would not), and what stands in its place; `unit`, the file that is compiled
// with it; `tests`, a file, of test/cuda unless it names another folder of test/, and a pattern of names. `ways` is what the
// emulator does first (STEPTRAIN_EMULATED_ASYNC).
const TILES = { unit: 'cuda/gemm/sm90_tiles.cu', tests: ['tiles', 'agree with the CPU: 400'] };
const MASKED = { unit: 'cuda/gemm/sm90_tiles_input.cu', tests: ['tiles', 'agree on a LoRA pair: 400 x 136'] };
const HEAD = {
  unit: 'cuda/head/sm90_product.cu',
  tests: ['head', 'agrees with the CPU: (70 rows, 456|130 rows, 24)'],
};
const attention = (unit, size, settings = '{}') => ({
  unit: `cuda/attention/${unit}.cu`,
  tests: ['attention.test', `heads of ${size}, ${settings.replace(/[{}[\]]/g, '\\$&')}: agrees with the CPU`],
});
const FORWARD = attention('sm90_forward', 128);
// Sequences whose mean length takes the other forward.
const PERSISTENT = attention('sm90_forward_persistent', 128, '{"lengths":[300,0,141,5,0,0]}');
const BACKWARD = attention('sm90_backward', 64);
const BACKWARD_128 = {
  unit: 'cuda/attention/sm90_backward_128.cu',
  tests: ['attention.test', 'kernels: new heads of 128, \\{\\}: agrees with the CPU'],
};
const KEYS = attention('sm90_backward_keys', 128);
const QUERIES = attention('sm90_backward_queries', 128);
const ROWS = { unit: 'cuda/gemm/sm90_few_rows.cu', tests: ['few-rows', 'linear 40 outputs'] };
const EARLY_ROWS = { unit: 'cuda/gemm/sm90_few_rows.cu', tests: ['early', 'cuda'] };
const EARLY_NORM = { unit: 'cuda/rmsnorm.cu', tests: ['early', 'cuda'] };
const EARLY_STREAM = { unit: 'cuda/runtime/stream.cc', tests: ['early', 'cuda'] };
const SKINNY = { unit: 'cuda/gemm/skinny_slices.cu', tests: ['tiles', 'agree on a LoRA pair: 400 x 136'] };
const GRADIENTS = { unit: 'cuda/gemm/skinny_tokens.cu', tests: ['gemm', 'sums 700 tokens'] };
const STREAM_K = { unit: 'cuda/gemm/sm90_stream_k.cu', tests: ['tiles', 'bits of whole tiles: (y|dx)'] };
const ONCE = { unit: 'cuda/gemm/skinny_once.cu', tests: ['gemm', 'kernels: new sums 300 tokens, 600'] };
const PORTABLE_ROWS = {
  unit: 'cuda/gemm/few_rows.cu',
  tests: ['few-rows', 'linear (40|104) outputs'],
  capability: 80,
};
const GROUPS = {
  file: 'cuda/gemm/groups.cu',
  unit: 'cuda/gemm/groups.cu',
  tests: ['experts', 'a group reads the weight'],
  capability: 80,
};
const PAGED = {
  unit: 'cuda/attention/paged_bf16.cu',
  tests: ['attention-paged', 'agrees with the CPU: .*"headDim":(64|128)'],
};
const STEP = {
  unit: 'cuda/attention/paged_bf16.cu',
  tests: ['attention-step', 'agrees with the CPU.*"headDim":64|starts in its turn'],
};

const DELTA = {
  file: 'cuda/gated_delta_rule.cu',
  unit: 'cuda/gated_delta_rule.cu',
  tests: ['ops/gated-delta-rule', 'cuda.*delta rule of (groups|widths)'],
  capability: 80,
};
/** In rows of kept states. */
const KEPT = { tests: ['ops/recurrence', 'cuda.*pieces from kept states'] };
const CONVOLUTION = {
  file: 'cuda/causal_conv1d.cu',
  unit: 'cuda/causal_conv1d.cu',
  tests: ['ops/causal-conv1d', 'cuda'],
  capability: 80,
};

const tiles = 'cuda/gemm/sm90_tiles.cuh';
const ring = 'cuda/gemm/sm90_tile_ring.cuh';
const stores = 'cuda/gemm/sm90_tile_stores.cuh';
const head = 'cuda/head/sm90_product.cu';
const block = 'cuda/attention/sm90_tiles.cuh';
const backward = 'cuda/attention/sm90_backward.cuh';
const at = (name) => `cuda/attention/${name}.cu`;
const rows = 'cuda/gemm/sm90_few_rows.cuh';
const paged = at('paged_bf16');
const once = 'cuda/gemm/skinny_once.cu';
const streamK = 'cuda/gemm/stream_k.cuh';

const MAIN_ROUND = `      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDepth / kStep; k++)`;
const RELEASED = `      wgmma_wait<1>();
      if (before >= 0) release(before);
      before = place.stage;
    }
    wgmma_wait<0>();`;
const without = (line) => ({ from: line, to: '' });

export const MUTANTS = [
  {
    name: 'products: no wgmma.fence',
    file: tiles,
    from: MAIN_ROUND,
    to: MAIN_ROUND.replace('wgmma_fence();', ''),
    ...TILES,
  },
  {
    name: 'products: no fence after mbarrier init',
    file: tiles,
    ...without('    fence_barrier_init();\n'),
    ...TILES,
  },
  {
    name: 'products: a stage released before its wgmma has finished',
    file: tiles,
    from: RELEASED,
    to: RELEASED.replace('wgmma_wait<1>();', 'wgmma_wait<2>();'),
    ...TILES,
  },
  {
    name: 'products: sums read before their products are waited for',
    file: tiles,
    from: '    wgmma_wait<0>();\n    pin(sums.v);\n    if (before >= 0) release(before);\n    if constexpr (kStreamK)',
    to: '    pin(sums.v);\n    if (before >= 0) release(before);\n    if constexpr (kStreamK)',
    ...TILES,
  },
  {
    name: 'products: one warp too few gives a stage back',
    file: ring,
    from: 'mbarrier_init(empty(stage), kConsumerWarps);',
    to: 'mbarrier_init(empty(stage), kConsumerWarps - 1);',
    ...TILES,
  },
  {
    name: 'products: a stage not waited for',
    file: tiles,
    from: `      mbarrier_wait(ring.full(place.stage), place.parity);
      const uint64_t a = a_factor(), b = b_factor();
${MAIN_ROUND}`,
    to: `      const uint64_t a = a_factor(), b = b_factor();
${MAIN_ROUND}`,
    ways: 'late',
    ...TILES,
  },
  {
    name: 'products: fewer bytes expected than come',
    file: ring,
    from: 'Ring::kBytesA + kWidth * kDepth * 2);',
    to: 'Ring::kBytesA);',
    ...TILES,
  },
  {
    name: 'products: no proxy fence before an output is stored',
    file: stores,
    from: '    fence_proxy_async();\n    warpgroup_barrier(id);',
    to: '    warpgroup_barrier(id);',
    ...TILES,
  },
  {
    name: 'products: no barrier before an output is stored',
    file: stores,
    from: '    fence_proxy_async();\n    warpgroup_barrier(id);',
    to: '    fence_proxy_async();',
    ...TILES,
  },
  {
    name: 'products: an output box filled while it may be read',
    file: stores,
    ...without('    if (sends) tma_store_wait_read<kBoxes - 1>();\n'),
    ways: 'late',
    ...TILES,
  },
  {
    name: 'products: a block ends before its stores have read',
    file: tiles,
    ...without('  if (maps.sends && threadIdx.x % kGroup == 0) tma_store_wait_read<0>();\n'),
    ways: 'late',
    ...TILES,
  },
  {
    name: 'products: the mask not waited for',
    file: 'cuda/gemm/sm90_tile_mask.cuh',
    ...without('    mbarrier_wait(full(place.stage), place.parity);\n'),
    ways: 'random',
    ...MASKED,
  },

  {
    name: "stream-K: another block's sums not waited for",
    file: streamK,
    ...without('    if (taken) wait_for_count(mark(block - 1, group), 1);\n'),
    ...STREAM_K,
  },
  {
    name: 'stream-K: sums left without a fence',
    file: streamK,
    from: '    __threadfence();\n    warpgroup_barrier(group);',
    to: '    warpgroup_barrier(group);',
    ...STREAM_K,
  },
  {
    name: 'stream-K: sums marked before all threads have left theirs',
    file: streamK,
    from: '    __threadfence();\n    warpgroup_barrier(group);',
    to: '    __threadfence();',
    ways: 'random',
    ...STREAM_K,
  },
  {
    name: 'stream-K: the mark set back before all threads have seen it',
    file: streamK,
    ...without('    warpgroup_barrier(group);  // all have seen the mark\n'),
    ways: 'random',
    ...STREAM_K,
  },
  {
    name: 'stream-K: the mark not set back',
    file: streamK,
    ...without('    if (threadIdx.x % kGroup == 0) *mark(block - 1, group) = 0;\n'),
    ...STREAM_K,
  },
  {
    name: 'stream-K: the tickets not set back',
    file: streamK,
    ...without('      if (drawn == gridDim.x - 1) *tickets = 0;\n'),
    ...STREAM_K,
  },
  {
    name: 'stream-K: one round for two blocks',
    file: streamK,
    from: 'return {to.tile, 0, to.first};',
    to: 'return {to.tile, 0, to.first + 1};',
    ...STREAM_K,
  },
  {
    name: 'stream-K: a tile taken by two blocks',
    file: streamK,
    from: '(from.first > 0 ? 1 : 0) + i;',
    to: 'i;',
    ...STREAM_K,
  },
  {
    name: 'stream-K: the narrow tiles one column of tiles too far left',
    file: ring,
    from: 'int64_t{plan.across} * kColumns};',
    to: 'int64_t{plan.across - 1} * kColumns};',
    ...STREAM_K,
  },
  {
    name: 'stream-K: a LoRA pair added by both blocks of a tile',
    file: tiles,
    from: `    for (int round = 0; round < walk.lora_rounds && first == 0; round++, place.advance()) {
      mbarrier_wait`,
    to: `    for (int round = 0; round < walk.lora_rounds; round++, place.advance()) {
      mbarrier_wait`,
    ...STREAM_K,
  },

  { name: 'head: no wgmma.fence', file: head, ...without('        wgmma_fence();\n'), ...HEAD },
  {
    name: 'head: no fence after mbarrier init',
    file: head,
    ...without('    fence_barrier_init();\n'),
    ...HEAD,
  },
  {
    name: 'head: a stage released before its wgmma has finished',
    file: head,
    from: 'wgmma_wait<1>();\n        if',
    to: 'wgmma_wait<2>();\n        if',
    ...HEAD,
  },
  {
    name: 'head: a stage not waited for',
    file: head,
    ...without('        mbarrier_wait(&full[place.stage], place.parity);\n'),
    ways: 'late',
    ...HEAD,
  },
  {
    name: 'head: no proxy fence before values are stored',
    file: head,
    ...without('    fence_proxy_async();\n'),
    ...HEAD,
  },
  {
    name: 'head: the same box for every 64 columns',
    file: head,
    from: 'buffer + box % 2 * kStoreBytes',
    to: 'buffer',
    ways: 'late',
    ...HEAD,
  },

  {
    name: 'forward: no fence after mbarrier init',
    file: at('sm90_forward'),
    ...without('    fence_barrier_init();\n'),
    ...FORWARD,
  },
  {
    name: 'forward: no barrier after zeroing V',
    file: block,
    ...without('  named_barrier_sync(kBarrier);\n'),
    ...FORWARD,
  },
  {
    name: 'forward: no wgmma.fence before scores',
    file: block,
    from: '  wgmma_fence();\n  wgmma<false, false, true>',
    to: '  wgmma<false, false, true>',
    ...FORWARD,
  },
  {
    name: 'forward: no wgmma.fence before a product from registers',
    file: block,
    from: '  wgmma_fence();\n#pragma unroll\n  for (int k = 0; k < kSums / 8; k++)\n    wgmma_from',
    to: '#pragma unroll\n  for (int k = 0; k < kSums / 8; k++)\n    wgmma_from',
    ...FORWARD,
  },
  {
    // Not those of the other tiles: the producer waits for the values of a tile before it loads over keys, and those are
    // given back after all products.
    name: 'forward: the first keys given back before their scores are waited for',
    file: at('sm90_forward'),
    from: '    turns.pass();\n    wgmma_wait<0>();\n    pin(scores);\n    release(&k_empty[0]);',
    to: '    turns.pass();\n    release(&k_empty[0]);\n    wgmma_wait<0>();\n    pin(scores);',
    ways: 'late',
    // More tiles of keys than the ring has stages.
    ...attention('sm90_forward', 128, '{"lengths":[650],"heads":1}'),
  },
  {
    name: 'forward: weights rounded before the values are waited for',
    file: at('sm90_forward'),
    from: '    wgmma_wait<0>();\n    pin(out);\n    factor_a.pin();\n    release(&v_empty[before.stage]);',
    to: '    pin(out);\n    factor_a.pin();\n    release(&v_empty[before.stage]);',
    ...FORWARD,
  },
  {
    name: 'forward: keys of the next sequence not masked',
    file: at('sm90_forward'),
    from: '    if (all_visible(p, tile, first, kGroupRows, key, key + kKeys)) return;',
    to: '    if (all_visible(p, tile, first, kGroupRows, key, key + 1)) return;',
    ...FORWARD,
  },

  {
    name: 'persistent forward: no proxy fence after zeroing V',
    file: block,
    from: '  fence_proxy_async();\n  named_barrier_sync(kBarrier);',
    to: '  named_barrier_sync(kBarrier);',
    ...PERSISTENT,
  },
  {
    name: 'persistent forward: no barrier before results are stored',
    file: at('sm90_forward_persistent'),
    from: '    fence_proxy_async();\n    warpgroup_barrier(group);',
    to: '    fence_proxy_async();',
    ...PERSISTENT,
  },
  {
    name: 'persistent forward: queries loaded over results that may still be read',
    file: at('sm90_forward_persistent'),
    from: '    tma_store_wait_read<0>();\n    mbarrier_arrive(&q_empty[stored]);',
    to: '    mbarrier_arrive(&q_empty[stored]);',
    ways: 'late',
    ...PERSISTENT,
  },
  {
    name: 'persistent forward: turns not passed on',
    file: at('sm90_forward_persistent'),
    from: '  __device__ void pass() { named_barrier_arrive(kConsumers + 3 - group); }',
    to: '  __device__ void pass() {}',
    ...PERSISTENT,
  },
  {
    name: 'persistent forward: the counter of tiles not set back',
    file: at('sm90_forward_persistent'),
    ...without('    if (drawn == total + gridDim.x - 1) *ticket = 0;\n'),
    // The next launch finds it.
    ...PERSISTENT,
    tests: ['attention.test', 'heads of 128, .*300,0,141,5,0,0.*agrees with the CPU'],
  },

  {
    name: 'backward: no proxy fence after ds',
    file: at('sm90_backward'),
    from: '    fence_proxy_async();\n    // For both',
    to: '    // For both',
    ...BACKWARD,
  },
  {
    name: 'backward: no barrier after ds',
    file: at('sm90_backward'),
    from: "    // For both consumers' ds of this step.\n    named_barrier_sync(kKeysBarrier);",
    to: '',
    ...BACKWARD,
  },
  {
    name: 'backward: ds overwritten while it may be read',
    file: at('sm90_backward'),
    ...without(
      '      if (part == 0) mbarrier_wait(&slopes_empty, static_cast<uint32_t>(place.stage) ^ 1);\n',
    ),
    ...BACKWARD,
  },
  {
    name: 'backward: dq added out of turn',
    file: backward,
    ...without('        wait_for_count(&sums.added[at], turn);\n'),
    ...BACKWARD,
  },
  {
    name: 'backward: dq counted before it has been added',
    file: backward,
    from: '      bulk_wait<1>();\n      close();',
    to: '      close();',
    ways: 'late',
    ...BACKWARD,
  },
  {
    name: 'backward: dq overwritten while a copy may read it',
    file: backward,
    ...without('  mbarrier_wait(&barriers.sums_empty[consumer][buffer], parity ^ 1);\n'),
    ways: 'late',
    ...BACKWARD,
  },
  {
    name: 'backward of 128: no proxy fence after ds',
    file: at('sm90_backward_128'),
    from: '    fence_proxy_async();\n    mbarrier_arrive(&slopes_full',
    to: '    mbarrier_arrive(&slopes_full',
    ...BACKWARD_128,
  },
  {
    name: "backward of 128: the other consumer's ds not waited for",
    file: at('sm90_backward_128'),
    ...without('    mbarrier_wait(&slopes_full[of.stage], of.parity);\n'),
    ...BACKWARD_128,
  },
  {
    name: 'backward of 128: one place of ds for two steps',
    file: at('sm90_backward_128'),
    from: 'stmatrix(shared.ds_tile(stage) +',
    to: 'stmatrix(shared.ds_tile(0) +',
    ...BACKWARD_128,
  },
  {
    name: 'backward of 128: dq read before its product is waited for',
    file: at('sm90_backward_128'),
    from: '    wgmma_wait<0>();\n    pin(dq);',
    to: '    pin(dq);',
    ...BACKWARD_128,
  },
  {
    name: 'backward of 128: a stage given back before its products are waited for',
    file: at('sm90_backward_128'),
    from: '    wgmma_wait<0>();\n    pin(dv);',
    to: '    pin(dv);',
    ...BACKWARD_128,
  },
  {
    name: 'backward of keys: statistics not counted',
    file: at('sm90_backward_keys'),
    from: 'mbarrier_init(&full[stage], 1 + 32);',
    to: 'mbarrier_init(&full[stage], 1);',
    ...KEYS,
  },
  {
    name: 'backward of keys: a stage given back before its products are waited for',
    file: at('sm90_backward_keys'),
    from: '    wgmma_wait<0>();\n    pin(dv);',
    to: '    pin(dv);',
    ...KEYS,
  },
  {
    name: 'backward of queries: a stage given back one round early',
    file: at('sm90_backward_queries'),
    from: '    release();\n    before = stage;',
    to: '    before = stage;\n    release();',
    ...QUERIES,
  },

  { name: 'few rows: no wgmma.fence', file: rows, ...without('        wgmma_fence();\n'), ...ROWS },
  {
    name: 'few rows: no fence after mbarrier init',
    file: rows,
    ...without('    fence_barrier_init();\n'),
    ...ROWS,
  },
  {
    name: 'few rows: a stage released before its wgmma has finished',
    file: rows,
    from: 'wgmma_wait<1>();\n        if',
    to: 'wgmma_wait<2>();\n        if',
    ...ROWS,
  },
  {
    name: 'few rows: the last slice left out',
    file: rows,
    from: '      if (i < slices) slice[half][i] =',
    to: '      if (i + 1 < slices) slice[half][i] =',
    ...ROWS,
  },
  {
    name: 'few rows by mma: sums of other blocks read without a fence',
    file: 'cuda/reduce.cuh',
    from: '  __threadfence();\n  __syncthreads();\n  if (threadIdx.x == 0) {',
    to: '  __syncthreads();\n  if (threadIdx.x == 0) {',
    ...PORTABLE_ROWS,
  },
  {
    name: 'few rows by mma: no barrier in the ring',
    file: 'cuda/gemm/factor.cuh',
    ...without('    __syncthreads();  // all threads see this round, and none still reads the one before\n'),
    ...PORTABLE_ROWS,
  },

  {
    name: 'LoRA: a round multiplied before its copies have arrived',
    file: 'cuda/gemm/factor.cuh',
    from: '    cp_async_wait<kStages - 2>();',
    to: '    cp_async_wait<kStages - 1>();',
    ...SKINNY,
  },
  {
    name: 'LoRA: the ticket not set back',
    file: 'cuda/reduce.cuh',
    ...without('    if (last) *ticket = 0;\n'),
    ...SKINNY,
    // The next launch finds it, where the depth is more than one slice.
    tests: ['tiles', 'agree on a LoRA pair: 272 x 128'],
  },
  {
    name: 'LoRA gradients: partial sums read without a fence',
    file: 'cuda/reduce.cuh',
    from: '  __threadfence();\n  __syncthreads();\n  if (threadIdx.x == 0) {',
    to: '  __syncthreads();\n  if (threadIdx.x == 0) {',
    ...GRADIENTS,
  },
  {
    name: 'LoRA once: parts of v added before all are written',
    file: once,
    from: '  __syncthreads();\n  leave_v(rounds - 1);',
    to: '  leave_v(rounds - 1);',
    ...ONCE,
  },
  {
    name: 'LoRA once: one place for the parts of two rounds',
    file: once,
    from: 'round % 2 * kWarps',
    to: '0 * kWarps',
    ...ONCE,
  },
  {
    name: 'LoRA once: the last split left out of db',
    file: once,
    from: 'of_db, p.splits)',
    to: 'of_db, p.splits - 1)',
    ...ONCE,
  },

  {
    name: 'groups: a product read before it is written',
    ...GROUPS,
    from: 'product_of<kLayout>(all, groups, place);\n  __syncthreads();',
    to: 'product_of<kLayout>(all, groups, place);',
  },
  {
    name: 'groups: the block of a last tile takes none',
    ...GROUPS,
    from: 'through > int64_t{blockIdx.x}',
    to: 'through > int64_t{blockIdx.x} + 1',
  },
  {
    name: 'groups: lanes count the tiles of 15 before them alone',
    ...GROUPS,
    from: 'distance < kWarp;',
    to: 'distance < kWarp / 2;',
  },
  {
    name: 'groups: the pair of a group of another adapter',
    ...GROUPS,
    from: 'own_of(all.lora_b, pair);',
    to: 'own_of(all.lora_b, pair % groups.weights);',
  },
  {
    name: 'groups: a quantised weight left out whose first group has no rows',
    ...GROUPS,
    from: 'group += groups.weights)',
    to: 'group += groups.count)',
    tests: ['experts', 'a quantised weight is multiplied'],
  },

  {
    name: 'paged attention: keys read before they have arrived',
    file: paged,
    from: "    cp_async_wait<1>();  // the warp's keys",
    to: "    cp_async_wait<2>();  // the warp's keys",
    ...PAGED,
  },
  {
    name: 'paged attention: values overwritten while they may be read',
    file: paged,
    ...without('      __syncthreads();  // no thread still reads values, weights and masses\n'),
    ...PAGED,
  },
  {
    name: 'paged attention: weights read before all are written',
    file: paged,
    ...without('    __syncthreads();  // all threads see weights, masses and values\n'),
    ...PAGED,
  },
  {
    name: 'paged attention: chunks of other blocks read without a fence',
    file: 'cuda/reduce.cuh',
    from: '  __threadfence();\n  __syncthreads();\n  if (threadIdx.x == 0) {',
    to: '  __syncthreads();\n  if (threadIdx.x == 0) {',
    ...PAGED,
    // One row alone, which several blocks share.
    tests: ['attention-paged', 'gives a token the same bits in any chunk.*"headDim":64'],
  },
  {
    name: "a step's attention: the new key not kept out of its block's copies",
    file: paged,
    from: '        if (!kNew || key + row != all.last)\n',
    to: '',
    ...STEP,
  },
  {
    name: "a step's attention: queries copied before the kernel in front has ended",
    file: paged,
    from: '      if (!kNew || !inside)\n',
    to: '',
    ...STEP,
  },

  {
    name: 'experts: a pair counted from the first group, which has none',
    ...GROUPS,
    from: 'const int64_t pair = place.group - groups.bare;',
    to: 'const int64_t pair = place.group;',
  },
  {
    name: 'experts: a pair for rows that have none',
    ...GROUPS,
    from: '      p.rank = 0;\n',
    to: '',
  },
  {
    name: 'experts: one scale for all pairs',
    ...GROUPS,
    from: 'groups.scales[pair]',
    to: 'groups.scales[0]',
  },
  {
    name: 'experts: low-rank rows by the pair of the group before',
    ...GROUPS,
    from: 'place.group - groups.first) %',
    to: 'place.group - groups.first + groups.weights - 1) %',
  },
  {
    name: "experts: a block's tile counted from the first of its lane's groups on",
    ...GROUPS,
    from: '__shfl_sync(0xffffffffu, through - own, found)',
    to: '__shfl_sync(0xffffffffu, through, found)',
  },

  {
    name: 'early start: a norm reads its rows before its turn',
    file: 'cuda/rmsnorm.cu',
    ...without('  take_turn();\n'),
    ...EARLY_NORM,
  },
  {
    name: 'early start: rows of x loaded before their turn',
    file: rows,
    from: '      if (!early) load_rows(work, round, stage);',
    to: '      load_rows(work, round, stage);',
    ...EARLY_ROWS,
  },
  {
    name: 'early start: consumers without a turn',
    file: rows,
    from: '  take_turn();\n  const int consumer = group - 1;',
    to: '  const int consumer = group - 1;',
    ...EARLY_ROWS,
  },
  {
    name: 'early start: a weight that the op in front writes',
    file: 'cuda/runtime/stream.cc',
    from: '(predecessor->writes(span) || scratch.holds(span))',
    to: 'scratch.holds(span)',
    ...EARLY_STREAM,
  },

  {
    name: "delta rule: a branch and its trunk take each other's state",
    from: '  if (run == 0) {\n    delta_copy(state, trunk, n);',
    to: '  if (run != 0) {\n    delta_copy(state, trunk, n);',
    ...DELTA,
  },
  {
    name: 'delta rule: the branch before is the trunk',
    from: '  run = branch;\n}',
    to: '  run = 0;\n}',
    ...DELTA,
  },
  {
    name: 'delta rule: what a state remembers is not decayed',
    from: 'rest = value - gate.decay * memory,',
    to: 'rest = value - memory,',
    ...DELTA,
  },
  {
    name: 'delta rule: the state does not decay',
    from: 's = fmaf(k[r], delta, gate.decay * s);',
    to: 's = fmaf(k[r], delta, s);',
    ...DELTA,
  },
  {
    name: 'delta rule: an output of the state before its token',
    from: '    s = fmaf(k[r], delta, gate.decay * s);\n    out = fmaf(q[r], s, out);',
    to: '    out = fmaf(q[r], s, out);\n    s = fmaf(k[r], delta, gate.decay * s);',
    ...DELTA,
  },
  {
    name: 'delta rule: keys of another group',
    from: 'key_head = head / shape.group;\n  const int64_t s =',
    to: 'key_head = head % shape.key_heads;\n  const int64_t s =',
    ...DELTA,
  },
  {
    name: 'delta rule: queries are not divided by √K',
    from: '    delta_normal(qkv + shape.query(t, key_head), q, shape.key_size, factor);',
    to: '    delta_normal(qkv + shape.query(t, key_head), q, shape.key_size, 1.0f);',
    ...DELTA,
  },
  {
    name: 'delta rule: keys are read before all threads have divided them',
    from: 'to_float(x[i]) * (inverse * factor);\n  __syncthreads();',
    to: 'to_float(x[i]) * (inverse * factor);',
    ...DELTA,
  },
  {
    name: 'delta rule: a kept state is forgotten',
    from: '  if (place.before == 0) delta_zero(state, elements);',
    to: '  delta_zero(state, elements);',
    ...DELTA,
    ...KEPT,
  },
  {
    name: 'delta rule: a new sequence goes on from what lies there',
    ...without('  if (place.before == 0) delta_zero(state, elements);'),
    ...DELTA,
    ...KEPT,
  },
  {
    name: 'delta rule: states of rows in the order of the batch',
    from: 'kept + (place.slot * shape.heads + head) * elements',
    to: 'kept + (s * shape.heads + head) * elements',
    ...DELTA,
    ...KEPT,
  },
  {
    name: 'delta rule backward: no state kept before a chunk but the first',
    from: '      if (i % kDeltaChunk == 0) delta_copy(',
    to: '      if (i == 0) delta_copy(',
    ...DELTA,
  },
  {
    name: 'delta rule backward: a chunk begins in its trunk',
    from: '      run = from > 0 ? sequences.branch_of(begin + from - 1) : 0;',
    to: '      run = 0;',
    ...DELTA,
  },
  {
    name: 'delta rule backward: the first token of a chunk is left out',
    from: '      for (int64_t i = to - 1; i >= from; i--) {',
    to: '      for (int64_t i = to - 1; i > from; i--) {',
    ...DELTA,
  },
  {
    name: 'delta rule backward: the gradient of a branch that ended stays',
    from: 'into[e] += ended[e], ended[e] = 0;',
    to: 'into[e] += ended[e];',
    ...DELTA,
  },
  {
    name: "delta rule backward: db of one thread's columns",
    ...without('        beta_sum = block_sum(beta_sum);\n'),
    ...DELTA,
  },
  {
    name: "delta rule backward: dq without the token's own part",
    from: '          dq[at] = gate.decay * from_out + k[r] * along;',
    to: '          dq[at] = gate.decay * from_out;',
    ...DELTA,
  },
  {
    name: 'delta rule backward: dk of a state that does not decay',
    from: '          dk[at] = from_delta + gate.decay * from_memory;',
    to: '          dk[at] = from_delta + from_memory;',
    ...DELTA,
  },
  {
    name: 'delta rule backward: dS without what the memory gives',
    from: 'const float decayed = fmaf(k[r], dmemory[v], d);',
    to: 'const float decayed = d;',
    ...DELTA,
  },
  {
    name: 'delta rule backward: da of no softplus',
    from: '          dsoft[at] = -dg * gate.rate / (1.0f + expf(-x));',
    to: '          dsoft[at] = -dg * gate.rate;',
    ...DELTA,
  },
  {
    name: 'delta rule backward: gradients of norms left out',
    from: '(incoming(i) - to_float(x[i]) * inverse * along)',
    to: 'incoming(i)',
    ...DELTA,
  },
  {
    name: 'delta rule backward: keys have the gradient of one head of their group',
    from: '    for (int g = 0; g < shape.group; g++) sum += dy',
    to: '    for (int g = 0; g < 1; g++) sum += dy',
    ...DELTA,
  },
  {
    name: 'delta rule backward: da_log is overwritten',
    from: '  if (da_log) da_log[head] += rate;',
    to: '  if (da_log) da_log[head] = rate;',
    ...DELTA,
  },
  {
    name: 'convolution: taps in the other order',
    from: 'sum = fmaf(to_float(weight[kept - j]), values[j], sum);',
    to: 'sum = fmaf(to_float(weight[j]), values[j], sum);',
    ...CONVOLUTION,
  },
  {
    name: 'convolution: tokens of the sequence before',
    from: '    taps[count] = at;\n    values[count++] = to_float(x[at * channels + c]);\n  }',
    to: '    taps[count] = at;\n    values[count++] = to_float(x[at * channels + c]);\n    if (at == begin && at > 0) values[count++] = to_float(x[(at - 1) * channels + c]);\n  }',
    ...CONVOLUTION,
  },
  {
    name: 'convolution: kept inputs, the oldest first',
    from: '    values[all++] = to_float(state[(kept - 1 - p) * channels + c]);',
    to: '    values[all++] = to_float(state[p * channels + c]);',
    ...CONVOLUTION,
    ...KEPT,
  },
  {
    name: 'convolution: a short piece does not move what is kept',
    from: ': own[(i + length) * channels + c];',
    to: ': own[i * channels + c];',
    ...CONVOLUTION,
    ...KEPT,
  },
  {
    name: 'convolution backward: silu without its own slope',
    from: 'fmaf(z * sigma, 1.0f - sigma, sigma);',
    to: 'sigma;',
    ...CONVOLUTION,
  },
  {
    name: 'convolution backward: a token gives to itself alone',
    from: '        sums[at] = fmaf(to_float(weight[c * (kept + 1) + kept - j]), dz, sums[at]);',
    to: '        if (j == 0) sums[at] = fmaf(to_float(weight[c * (kept + 1) + kept]), dz, sums[at]);',
    ...CONVOLUTION,
  },
  {
    name: 'convolution backward: gradients of taps in the other order',
    from: 'dweight[c * (kept + 1) + kept - j] += dtaps[j];',
    to: 'dweight[c * (kept + 1) + j] += dtaps[j];',
    ...CONVOLUTION,
  },
];
