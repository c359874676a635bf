// Loss curves of the quickstart part of gpu-check.sh, compared. Rounding differs between any two kernels and training
// amplifies it, so the yardstick is a third run: the processor again with kernels of another instruction set, which
// differ by rounding alone. The GPU may be off by twice as much at first and by four times over a whole phase, in which
// the moment that something is learned moves with the rounding.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { linesOf } from './findings.mjs';

/** Steps before training has amplified much. */
const EARLY = 20;
const FACTOR = { early: 2, mean: 4 };
/** What is forgiven where the yardstick happens to be smaller: rounding of a loss of a few nats. */
const LEAST = { f32: 1e-5, bf16: 4e-3 };

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const rounded = (value) => Number(value.toPrecision(4));

function differences(one, two) {
  const steps = Math.min(one.length, two.length);
  if (steps === 0) return undefined;
  const off = Array.from({ length: steps }, (_, i) => Math.abs(one[i] - two[i]));
  return {
    steps,
    early: rounded(mean(off.slice(0, EARLY))),
    mean: rounded(mean(off)),
    largest: rounded(Math.max(...off)),
  };
}

/** What the runs in `folder`, named <side>-<dtype>, have to do with each other. */
export function curvesOf(folder) {
  const found = {};
  const broken = [];
  for (const dtype of ['f32', 'bf16']) {
    const runs = Object.fromEntries(
      ['cpu', 'other', 'gpu'].map((side) => [
        side,
        linesOf(join(folder, `${side}-${dtype}`, 'metrics.jsonl')),
      ]),
    );
    const phases = {};
    for (const phase of ['sft', 'frn', 'ppo']) {
      const losses = (side) =>
        runs[side].flatMap((line) => (line.phase === phase && 'loss' in line ? [line.loss] : []));
      const gpu = differences(losses('cpu'), losses('gpu'));
      const other = differences(losses('cpu'), losses('other'));
      phases[phase] = { gpu, other, cpuLosses: thinned(losses('cpu')), gpuLosses: thinned(losses('gpu')) };
      // The policy draws its own data: after the first draw that falls otherwise there is nothing to compare.
      if (phase === 'ppo' || !gpu || !other) continue;
      for (const part of ['early', 'mean']) {
        if (!(gpu[part] <= FACTOR[part] * other[part] + LEAST[dtype]))
          broken.push(`${dtype} ${phase} ${part}`);
      }
    }
    const evaluation = Object.fromEntries(
      Object.keys(runs).map((side) => [side, macroF1(join(folder, `${side}-${dtype}`, 'eval.json'))]),
    );
    found[dtype] = { ...phases, f1_macro: evaluation };
  }
  const { gpu, other } = found.f32.sft;
  const half = found.bf16.sft;
  return {
    curves: found,
    tolerance: { factor: FACTOR, least: LEAST, early_steps: EARLY },
    passed: broken.length === 0 && gpu !== undefined && half.gpu !== undefined,
    headline: gpu
      ? `mean difference of the warm-up's loss f32 ${gpu.mean} (of two CPU kernels: ${other?.mean}), bf16 ` +
        `${half.gpu?.mean} (${half.other?.mean}), largest f32 ${gpu.largest}; ` +
        (broken.length > 0 ? `beyond tolerance: ${broken.join(', ')}` : 'within tolerance')
      : 'no curves',
  };
}

/** Some hundred values at most, for a plot. */
function thinned(losses) {
  const stride = Math.max(1, Math.ceil(losses.length / 200));
  return losses.filter((_, i) => i % stride === 0).map((loss) => Number(loss.toPrecision(5)));
}

function macroF1(path) {
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).metrics.f1_macro : undefined;
}
