/** The inputs of a recorded step at fixed addresses: the host writes all of them by two uploads. */
import type { AdapterStack } from '../../models/adapter-stack.js';
import type { Device } from '../../runtime/device.js';
import type { Tensor } from '../../runtime/tensor.js';
import type { Slice } from '../scheduler.js';
import type { DecodedRow } from './decode.js';
import type { StepDraws } from './draws.js';
import type { DrawingStep } from './inputs.js';
import { type SampledRow, topKOf } from './sampling-inputs.js';

export interface StepShape {
  /** R; rows beyond those of a step are inactive. */
  readonly rows: number;
  /** N: pages of a row's table. */
  readonly pages: number;
}

export class StepBuffers {
  /** i32 [R, 4], keys of `sample`. */
  readonly keys: Tensor;
  /** i32 [R]: where the step before drew the row's token; −1: inactive. */
  readonly from: Tensor;
  /** i32 [most rows]: tokens of each row of the step before, up to the one that it draws. */
  readonly lengths: Tensor;
  /** i32 [R, N] */
  readonly pages: Tensor;
  /** i32 [R] */
  readonly topK: Tensor;
  /** i32 [R]: index in the stack; −1: none. */
  readonly adapterOf: Tensor;
  /** i32 [R]: where each row has its states; −1: nowhere, or inactive. */
  readonly states: Tensor;
  /** i32 [R + 1]: one token a row. */
  readonly queryOffsets: Tensor;
  /** f32 [R] each. */
  readonly temperature: Tensor;
  readonly topP: Tensor;
  readonly minP: Tensor;
  private readonly integers: Tensor;
  private readonly floats: Tensor;
  private readonly integerValues: Int32Array<ArrayBuffer>;
  private readonly floatValues: Float32Array<ArrayBuffer>;
  /** Parts of `integers`, in the order of `views`. */
  private readonly parts: readonly Int32Array[];

  /** Holds its memory until `dispose`. */
  constructor(
    device: Device,
    readonly shape: StepShape,
    private readonly draws: StepDraws,
  ) {
    const { rows, pages } = shape;
    const shapes = [[rows, 4], [rows], [draws.most], [rows, pages], [rows], [rows], [rows]];
    const sizes = shapes.map((extents) => extents.reduce((product, extent) => product * extent, 1));
    this.integerValues = new Int32Array(sizes.reduce((sum, size) => sum + size, 0));
    this.floatValues = new Float32Array(3 * rows);
    this.integers = device.keep(device.empty([this.integerValues.length], 'i32'));
    this.floats = device.keep(device.zeros([3 * rows]));
    let offset = 0;
    const parts: Int32Array[] = [];
    const views = shapes.map((extents, i) => {
      const begin = offset;
      offset += sizes[i] as number;
      parts.push(this.integerValues.subarray(begin, offset));
      return device.keep(this.integers.view(begin, extents));
    });
    this.parts = parts;
    [this.keys, this.from, this.lengths, this.pages, this.topK, this.adapterOf, this.states] = views as [
      Tensor,
      Tensor,
      Tensor,
      Tensor,
      Tensor,
      Tensor,
      Tensor,
    ];
    [this.temperature, this.topP, this.minP] = [0, 1, 2].map((i) =>
      device.keep(this.floats.view(i * rows, [rows])),
    ) as [Tensor, Tensor, Tensor];
    this.queryOffsets = device.keep(device.tensor(Int32Array.from({ length: rows + 1 }, (_, r) => r)));
  }

  /** @param before draws the tokens of the slices, if they are not known yet */
  write<R extends DecodedRow>(
    slices: readonly Slice<R>[],
    rows: readonly SampledRow[],
    before: DrawingStep | undefined,
    stack: AdapterStack | undefined,
  ): void {
    const [keys, from, lengths, pages, topK, adapterOf, states] = this.parts as [
      Int32Array,
      Int32Array,
      Int32Array,
      Int32Array,
      Int32Array,
      Int32Array,
      Int32Array,
    ];
    from.fill(-1);
    pages.fill(-1);
    states.fill(-1);
    this.source(slices, before, from, lengths);
    slices.forEach(({ row: { as }, pages: own, state = -1 }, r) => {
      states[r] = state;
      const width = this.shape.pages;
      for (let i = 0; i < own.length && i < width; i++) pages[r * width + i] = own[i] as number;
      adapterOf[r] = stack && as.adapter ? stack.adapters.indexOf(as.adapter) : -1;
    });
    rows.forEach(({ settings, key, position }, r) => {
      keys[4 * r] = key[0];
      keys[4 * r + 1] = key[1];
      keys[4 * r + 2] = position;
      topK[r] = topKOf(settings);
    });
    this.integers.write(this.integerValues);
    this.writeSettings(rows);
  }

  /** The buffers from which the slices read their tokens and positions. */
  private source<R extends DecodedRow>(
    slices: readonly Slice<R>[],
    before: DrawingStep | undefined,
    from: Int32Array,
    lengths: Int32Array,
  ): void {
    const { draws } = this;
    if (!before) {
      const tokens = new Int32Array(this.shape.rows);
      slices.forEach(({ row, from: at }, r) => {
        tokens[r] = row.tokens[at] as number;
        lengths[r] = at;
        from[r] = r;
      });
      draws.of(this.shape.rows).tokens.write(tokens);
      return;
    }
    const places = new Map(before.rows.map((row, i) => [row as DecodedRow, i]));
    slices.forEach(({ row }, r) => {
      from[r] = places.get(row) as number;
    });
    lengths.set(before.counts);
    if (before.draws === draws) return;
    const { tokens } = before;
    tokens.device.ops.copy({ x: tokens, y: draws.of(before.rows.length).tokens });
  }

  /** Settings seldom change between steps. */
  private writeSettings(rows: readonly SampledRow[]): void {
    const { floatValues: values } = this;
    const count = this.shape.rows;
    let changed = false;
    const put = (at: number, value: number) => {
      const rounded = Math.fround(value);
      if (values[at] === rounded) return;
      values[at] = rounded;
      changed = true;
    };
    for (let r = 0; r < count; r++) {
      const settings = rows[r]?.settings;
      put(r, settings?.temperature ?? 0);
      put(count + r, settings?.topP ?? 1);
      put(2 * count + r, settings?.minP ?? 0);
    }
    if (changed) this.floats.write(values);
  }

  dispose(): void {
    const { keys, from, lengths, pages, topK, adapterOf, states, queryOffsets, temperature, topP, minP } =
      this;
    const views = [
      keys,
      from,
      lengths,
      pages,
      topK,
      adapterOf,
      states,
      queryOffsets,
      temperature,
      topP,
      minP,
    ];
    for (const tensor of [...views, this.integers, this.floats]) tensor.dispose();
  }
}
