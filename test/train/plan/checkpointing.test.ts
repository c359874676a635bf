import { expect, test } from 'vitest';
import { settleCheckpointing } from '../../../src/train/plan/checkpointing.js';

const MAX_LENGTH = 100;

/** 1,000 bytes for the roles, and for each token 10, or 3 with blocks that are computed again. */
function settled(
  gradient_checkpointing: boolean | 'auto',
  {
    available,
    micro = 'auto',
    shard_base = false,
    holders = 1,
  }: { available: number; micro?: number | 'auto'; shard_base?: boolean; holders?: number },
) {
  const config = { data: { max_length: MAX_LENGTH }, run: { gradient_checkpointing, shard_base } };
  const { run } = settleCheckpointing(config as never, holders, {
    sections: { sft: { micro_batch_tokens: micro }, ppo: { micro_batch_tokens: 'auto' } } as never,
    planOf: (planned: typeof config) =>
      ({ fixedBytes: 1000, bytesPerToken: planned.run.gradient_checkpointing === true ? 3 : 10 }) as never,
    availableTo: () => available,
  }) as unknown as typeof config;
  return run.gradient_checkpointing;
}

test('blocks are kept where the longest sequence fits with them, and computed again where it does not', () => {
  expect(settled('auto', { available: 2000 })).toBe(false);
  expect(settled('auto', { available: 1999 })).toBe(true);
});

test('a micro-batch that is set must fit too', () => {
  expect(settled('auto', { available: 2500, micro: 150 })).toBe(false);
  expect(settled('auto', { available: 2500, micro: 151 })).toBe(true);
});

test('what is set stays', () => {
  expect(settled(false, { available: 0 })).toBe(false);
  expect(settled(true, { available: 1e9 })).toBe(true);
});

test('blocks are computed again where several processes hold the base together', () => {
  expect(settled('auto', { available: 1e9, shard_base: true, holders: 2 })).toBe(true);
  expect(settled('auto', { available: 1e9, shard_base: true, holders: 1 })).toBe(false);
});
