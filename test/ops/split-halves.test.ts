import { afterAll, describe, expect, it } from 'vitest';
import { isas, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { sigmoid } from './recurrence-reference.js';

describe.each(isas)('split_halves and sigmoid_gate on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  it('splits rows in halves and joins them, and gates by a sigmoid', async () => {
    const x = random(6 * 10, 18);
    const { first, second } = device.ops.split_halves({ x: device.tensor(x, [6, 10]), D: 5 });
    const [left, right] = [await first.readFloats(), await second.readFloats()];
    expect([...left.slice(5, 10), ...right.slice(5, 10)]).toEqual([...x.slice(10, 20)]);
    expect(await device.ops.join_halves({ first, second, N: 10 }).y.readFloats()).toEqual(x);
    const dy = device.tensor(random(30, 19), [6, 5]);
    const values = await device.ops.sigmoid_gate({ gate: first, x: second }).y.readFloats();
    expect(
      maxDifference(
        values,
        left.map((g, i) => sigmoid(g) * (right[i] as number)),
      ),
    ).toBeLessThan(2e-7);
    const { dgate, dx } = device.ops.sigmoid_gate_backward({ dy, gate: first, x: second });
    const d = await dy.readFloats();
    const wanted = left.map(
      (g, i) => (d[i] as number) * (right[i] as number) * sigmoid(g) * (1 - sigmoid(g)),
    );
    expect(maxDifference(await dgate.readFloats(), wanted)).toBeLessThan(2e-7);
    expect(
      maxDifference(
        await dx.readFloats(),
        left.map((g, i) => (d[i] as number) * sigmoid(g)),
      ),
    ).toBeLessThan(2e-7);
  });
});
