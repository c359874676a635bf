// The tape: gradients of compositions, seeds, watched tensors, and no memory leaks.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { TrainableParameters } from '../../src/autograd/parameters.js';
import { openTape, Tape } from '../../src/autograd/tape.js';
import { nll } from '../../src/objectives/nll.js';
import { linear } from '../../src/ops/gemm.js';
import { headLogprobs } from '../../src/ops/head.js';
import { gatherRows } from '../../src/ops/memory.js';
import { swiglu } from '../../src/ops/mlp.js';
import { addRmsNorm, rmsNorm } from '../../src/ops/norm.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { openTest } from '../ops/devices.js';
import { maxDifference, random } from '../ops/numbers.js';

const TOKENS = 6;
const HIDDEN = 16;
const INNER = 24;
const RANK = 3;
const VOCABULARY = 29;
const EPS = 1e-5;

let device: Device;
let parameters: TrainableParameters;
let frozen: Tensor;
let weights: Tensor;
let targets: Tensor;
let rows: Tensor;
let x: Tensor;
beforeAll(() => {
  device = openTest();
  const spec = (name: string, shape: readonly number[], seed: number, shift = 0) => ({
    name,
    shape,
    init: random(
      shape.reduce((a, b) => a * b, 1),
      seed,
    ).map((value) => shift + value / 2),
  });
  parameters = new TrainableParameters(device, [
    spec('norm', [HIDDEN], 1, 1),
    spec('gate', [INNER, HIDDEN], 2),
    spec('gate bias', [INNER], 3),
    spec('up A', [RANK, HIDDEN], 4),
    spec('up B', [INNER, RANK], 5),
    spec('down', [HIDDEN, INNER], 6),
    spec('final norm', [HIDDEN], 7, 1),
    spec('head', [VOCABULARY, HIDDEN], 8),
  ]);
  frozen = device.tensor(random(INNER * HIDDEN, 9), [INNER, HIDDEN]);
  weights = device.tensor(random(4, 10));
  targets = device.tensor(Int32Array.from([3, 28, 0, 7]));
  rows = device.tensor(Int32Array.from([5, 0, 2, 2]));
  x = device.tensor(random(TOKENS * HIDDEN, 11), [TOKENS, HIDDEN]);
});
afterAll(() => device.dispose());
beforeEach(() => parameters.zeroGrads());

const parameter = (name: string) => parameters.get(name)!;

/** One gated block with a residual connection, full, low-rank and frozen weights, and a head on chosen rows. */
function forward(input: Tensor): Tensor {
  const normed = rmsNorm(input, parameter('norm'), EPS);
  const gate = linear(normed, parameter('gate'), { bias: parameter('gate bias') });
  const lora = { a: parameter('up A'), b: parameter('up B'), scale: 1.5 };
  const up = linear(normed, { name: 'up', value: frozen }, { lora });
  const down = linear(swiglu(gate, up), parameter('down'));
  const { y } = addRmsNorm(down, input, parameter('final norm'), EPS);
  return headLogprobs(gatherRows(y, rows), parameter('head'), targets).logprobs;
}

const loss = (input = x, by = weights) => nll(forward(input), by);

async function gradients(): Promise<Map<string, Float32Array>> {
  const all = new Map<string, Float32Array>();
  for (const { name, grad } of parameters.list) all.set(name, await grad!.readFloats());
  return all;
}

/** Backward of one loss; returns the gradients and that of x. */
async function backward(seed = 1) {
  const tape = new Tape(device);
  tape.watch(x);
  const value = device.scope(() => tape.run(() => loss()));
  tape.backward([[value, seed]]);
  const dx = tape.takeGradient(x)!;
  const result = { all: await gradients(), dx: await dx.readFloats() };
  for (const tensor of [value, dx]) tensor.dispose();
  tape.dispose();
  return result;
}

/** Derivative of the loss along `direction` of `tensor`, by central differences. */
async function slope(tensor: Tensor, direction: Float32Array): Promise<number> {
  const values = await tensor.readFloats();
  const step = 2 ** -7;
  const at = async (sign: number) => {
    tensor.write(values.map((value, i) => value + sign * step * direction[i]!));
    const probe = device.scope(() => loss());
    const result = (await probe.readFloats())[0]!;
    probe.dispose();
    return result;
  };
  const result = ((await at(1)) - (await at(-1))) / (2 * step);
  tensor.write(values);
  return result;
}

describe('gradients', () => {
  test('of every parameter and of the input agree with finite differences', async () => {
    const { all, dx } = await backward();
    for (const [name, gradient] of [...all, ['x', dx] as const]) {
      const tensor = name === 'x' ? x : parameter(name).value;
      expect(Math.max(...gradient.map(Math.abs)), name).toBeGreaterThan(1e-3);
      // Along the gradient itself, scaled to length 1, and along random directions.
      const norm = Math.hypot(...gradient);
      const directions = [gradient.map((g) => g / norm)];
      for (let seed = 20; seed < 24; seed++) directions.push(random(gradient.length, seed).map((v) => v / 2));
      for (const direction of directions) {
        const expected = gradient.reduce((sum, g, i) => sum + g * direction[i]!, 0);
        const tolerance = 2e-3 * Math.max(norm, Math.abs(expected));
        expect(Math.abs((await slope(tensor, direction)) - expected), name).toBeLessThan(tolerance);
      }
    }
  });

  test('a tensor that is used twice receives the sum', async () => {
    const dy = device.tensor(random(TOKENS * HIDDEN, 12), [TOKENS, HIDDEN]);
    const tape = new Tape(device);
    tape.watch(x);
    const y = tape.run(() => swiglu(x, x));
    tape.backward([[y, dy]]);
    const dx = tape.takeGradient(x)!;
    // silu(v)·v = v²σ(v)
    const [values, incoming, found] = [await x.readFloats(), await dy.readFloats(), await dx.readFloats()];
    const expected = values.map((v, i) => {
      const sigma = 1 / (1 + Math.exp(-v));
      return incoming[i]! * (2 * v * sigma + v * v * sigma * (1 - sigma));
    });
    expect(maxDifference(found, expected)).toBeLessThan(1e-6);
    for (const tensor of [dy, y, dx]) tensor.dispose();
    tape.dispose();
  });

  test('are added to their buffers: two backwards give twice the gradient', async () => {
    const once = (await backward()).all;
    const twice = (await backward()).all;
    for (const [name, gradient] of once) {
      expect(
        maxDifference(
          twice.get(name)!,
          gradient.map((g) => 2 * g),
        ),
        name,
      ).toBeLessThan(1e-6);
    }
  });
});

describe('seeds', () => {
  test('are the weights of several losses of one tape', async () => {
    const other = device.tensor(random(4, 13));
    const single = async (by: Tensor) => {
      parameters.zeroGrads();
      const tape = new Tape(device);
      const value = device.scope(() => tape.run(() => loss(x, by)));
      tape.backward([[value, 1]]);
      value.dispose();
      return gradients();
    };
    const [first, second] = [await single(weights), await single(other)];
    parameters.zeroGrads();
    const tape = new Tape(device);
    const losses = device.scope(() =>
      tape.run(() => {
        const logprobs = forward(x);
        return [nll(logprobs, weights), nll(logprobs, other)];
      }),
    );
    tape.backward([
      [losses[0]!, 0.25],
      [losses[1]!, -2],
    ]);
    for (const [name, gradient] of await gradients()) {
      const expected = gradient.map((_, i) => 0.25 * first.get(name)![i]! - 2 * second.get(name)![i]!);
      expect(maxDifference(gradient, expected), name).toBeLessThan(2e-6);
    }
    for (const tensor of [...losses, other]) tensor.dispose();
  });

  test('add up if one loss has two, and a weight of 0 gives no gradient', async () => {
    const { all } = await backward(3);
    parameters.zeroGrads();
    const tape = new Tape(device);
    const value = device.scope(() => tape.run(() => loss()));
    tape.backward([
      [value, 1],
      [value, 2],
    ]);
    for (const [name, gradient] of await gradients()) {
      expect(maxDifference(gradient, all.get(name)!), name).toBeLessThan(2e-6);
    }
    value.dispose();
    parameters.zeroGrads();
    for (const gradient of (
      await backward(0).catch(() => ({ all: new Map<string, Float32Array>() }))
    ).all.values())
      expect(gradient.every((g) => g === 0)).toBe(true);
  });

  test('may be the gradient of any tensor of the tape', async () => {
    const dy = device.tensor(random(TOKENS * INNER, 14), [TOKENS, INNER]);
    const tape = new Tape(device);
    const y = tape.run(() => linear(x, parameter('gate'), { bias: parameter('gate bias') }));
    tape.backward([[y, dy]]);
    const [values, db] = [await dy.readFloats(), await parameter('gate bias').grad!.readFloats()];
    const sums = db.map((_, n) => {
      let sum = 0;
      for (let t = 0; t < TOKENS; t++) sum += values[t * INNER + n]!;
      return sum;
    });
    expect(maxDifference(db, sums)).toBeLessThan(1e-6);
    // The caller still owns its seed.
    expect(dy.isDisposed).toBe(false);
    dy.dispose();
    y.dispose();
  });

  test('are refused for tensors that no tape made', () => {
    const value = device.scope(() => loss());
    expect(() => new Tape(device).backward([[value, 1]])).toThrow(
      expect.objectContaining({
        code: 'E_TAPE',
        message: expect.stringMatching(/open the tape around the forward/),
      }),
    );
    value.dispose();
  });

  test('are refused for tensors of another tape, or of one whose backward has run', () => {
    const tape = new Tape(device);
    const value = device.scope(() => tape.run(() => loss()));
    const other = new Tape(device);
    expect(() => other.backward([[value, 1]])).toThrow(/not made on this tape/);
    tape.backward([[value, 1]]);
    expect(() => tape.backward([[value, 1]])).toThrow(/not made on this tape/);
    value.dispose();
  });
});

describe('watched tensors', () => {
  test('give their gradient once; a tensor that is not watched gives none', () => {
    const tape = new Tape(device);
    tape.watch(x);
    const value = device.scope(() => tape.run(() => loss()));
    tape.backward([[value, 1]]);
    const dx = tape.takeGradient(x);
    expect(dx?.shape).toEqual([TOKENS, HIDDEN]);
    expect(tape.takeGradient(x)).toBeUndefined();
    dx?.dispose();
    value.dispose();

    const unwatched = new Tape(device);
    const again = device.scope(() => unwatched.run(() => loss()));
    unwatched.backward([[again, 1]]);
    expect(unwatched.takeGradient(x)).toBeUndefined();
    again.dispose();
  });

  test('nothing is recorded if nothing is trainable or watched', () => {
    const tape = new Tape(device);
    const y = tape.run(() => linear(x, { name: 'up', value: frozen }));
    expect(tape.tracks(y)).toBe(false);
    expect(() => tape.backward([[y, 1]])).toThrow(/anything trainable/);
    y.dispose();
  });
});

describe('the open tape', () => {
  test('is that of the innermost run, and an error closes it', () => {
    const [outer, inner] = [new Tape(device), new Tape(device)];
    outer.run(() => {
      expect(openTape()).toBe(outer);
      inner.run(() => expect(openTape()).toBe(inner));
      expect(() =>
        inner.run(() => {
          throw new Error('no');
        }),
      ).toThrow('no');
      expect(openTape()).toBe(outer);
    });
    expect(openTape()).toBeUndefined();
  });
});

describe('memory', () => {
  const stats = () => {
    const { tensors, liveBytes } = device.stats();
    return { tensors, liveBytes };
  };

  test('a forward without a tape keeps only its result', () => {
    const before = stats();
    const value = device.scope(() => loss());
    expect(device.stats().tensors).toBe(before.tensors + 1);
    value.dispose();
    expect(stats()).toEqual(before);
  });

  test('a backward leaves nothing, whether the watched gradient is taken or dropped', () => {
    const before = stats();
    for (const take of [true, false]) {
      const tape = new Tape(device);
      tape.watch(x);
      const value = device.scope(() => tape.run(() => loss()));
      value.dispose();
      expect(stats().liveBytes).toBeGreaterThan(before.liveBytes);
      tape.backward([[value, 1]]);
      if (take) tape.takeGradient(x)?.dispose();
      tape.dispose();
      expect(stats()).toEqual(before);
    }
  });

  test('a tape that is disposed without a backward leaves nothing', () => {
    const before = stats();
    const tape = new Tape(device);
    tape.watch(x);
    device.scope(() => tape.run(() => loss())).dispose();
    tape.dispose();
    expect(stats()).toEqual(before);
  });

  test('a forward that throws half-way leaves nothing once its tape is disposed', () => {
    const before = stats();
    const tape = new Tape(device);
    expect(() => device.scope(() => tape.run(() => loss(x, targets)))).toThrow(/nll: weights must be f32/);
    tape.dispose();
    expect(stats()).toEqual(before);
  });

  test('a second dispose does nothing', () => {
    const before = stats();
    const tape = new Tape(device);
    device.scope(() => tape.run(() => loss())).dispose();
    tape.dispose();
    tape.dispose();
    expect(stats()).toEqual(before);
  });
});
