/**
 * A decoder on a device: weights, roles, and the loop over layers; its architecture computes a layer. Weights are frozen
 * and shared. The role, an argument of every forward, makes them a policy, a reference or a reward model.
 */
import type { Architecture, AttendOptions, Forward, Stream } from '../architectures/architecture.js';
import type { ModelConfig } from '../architectures/config.js';
import { className } from '../architectures/heads.js';
import { architectureOf, classifierOf } from '../architectures/table.js';
import type { Parameter } from '../autograd/parameters.js';
import { checkpoint, openTape } from '../autograd/tape.js';
import { invalid } from '../native/errors.js';
import { ExpertBalance } from '../objectives/expert-balance.js';
import { attention } from '../ops/attention.js';
import { disentangledAttention } from '../ops/disentangled-attention.js';
import { linearExperts, type Routing, route } from '../ops/experts.js';
import { type Dropout, linear, type Projection } from '../ops/gemm.js';
import { gatherIds } from '../ops/memory.js';
import { rmsNorm } from '../ops/norm.js';
import { rope } from '../ops/rope.js';
import type { Device } from '../runtime/device.js';
import type { DType, Tensor } from '../runtime/tensor.js';
import { headWeight } from '../weights/modules.js';
import type { Adapter, DropoutSource } from './adapter.js';
import type { AdapterStack } from './adapter-stack.js';
import { aliasBatch, type RaggedBatch, type TokenBatch } from './batch.js';
import type { MergedAdapter } from './merged-adapter.js';
import type { ChosenFormat, Quantize } from './quantize.js';
import type { ShardedLayers } from './sharded-layers.js';

/** A head with C outputs for each row that it reads: C = 1 is a value or a reward, C > 1 are the logits of classes. */
export interface LinearHead {
  /** [C, hidden] */
  readonly weight: Parameter;
  /** [C] */
  readonly bias?: Parameter | undefined;
  /** The first or last token of a sequence, or every token. */
  readonly reads: 'first' | 'last' | 'every';
  /** Computed on the rows that are read, before the head. */
  readonly pool?: ((rows: Tensor) => Tensor) | undefined;
}

/** The role of a forward. The empty role is the base model, the reference of every other role. */
export interface Role {
  readonly adapter?: Adapter | undefined;
  /** Reads the hidden states in place of the head of adapter or base. See `roleHead`. */
  readonly head?: LinearHead | undefined;
  /** Keys the dropout masks in training with lora_dropout. Absent: no dropout. */
  readonly dropout?: DropoutSource | undefined;
}

/** A role and the decoder that computes it. */
export interface PlacedRole {
  readonly decoder: Decoder;
  readonly role: Role;
}

/** A role of each token. `adapter` replaces only whole weights (`modules_to_save`); LoRA pairs come from `stack`. */
export interface StackedRole extends Pick<Role, 'adapter'> {
  readonly stack: AdapterStack;
  /** i32 [T]: index in the stack; −1: none. */
  readonly adapterOf: Tensor;
}

export interface DecoderOptions {
  /** Dtype of activations. */
  readonly dtype: 'f32' | 'bf16';
  /** Run each layer again in the backward instead of saving its insides. */
  readonly gradientCheckpointing?: boolean;
  /** Coefficient of the loss that balances experts, in differentiated forwards. Default 0. */
  readonly routerAuxLossCoef?: number | undefined;
  /** The weights that stay in 4 or 8 bits. Default none. */
  readonly quantize?: Quantize | undefined;
  /** Formats of those weights. */
  readonly formats?: ReadonlyMap<string, ChosenFormat> | undefined;
  /** The adapter that was added to the weights when they were loaded. */
  readonly merged?: MergedAdapter | undefined;
  /** The weights that this process holds with others; the decoder owns them. With `gradientCheckpointing`. */
  readonly layers?: ShardedLayers | undefined;
}

/** The loss of a conversion of weights. */
export interface Rounding {
  /** Values that the new dtype cannot hold exactly. */
  readonly inexact: number;
  /** Values converted in all. */
  readonly values: number;
}

/** Positions for which an architecture's constants are made at first; doubled when a batch needs more. */
const FIRST_POSITIONS = 4096;

/** The state of earlier tokens, for layers that mix tokens. */
export type Past = Pick<Forward, 'attend' | 'recurrence'>;

/** The keys of a dropout mask. */
type DropoutRows = Pick<TokenBatch, 'rowIds' | 'positions'>;

interface Constants {
  readonly positions: number;
  readonly byName: ReadonlyMap<string, Tensor>;
}

export class Decoder {
  private readonly architecture: Architecture;
  private readonly headWeight: string | undefined;
  private constants: Constants = { positions: 0, byName: new Map() };

  constructor(
    readonly device: Device,
    readonly config: ModelConfig,
    /** Weights by Hugging Face name, such as `model.layers.0.mlp.up_proj.weight`. Owned by the decoder. */
    readonly weights: ReadonlyMap<string, Parameter>,
    readonly options: DecoderOptions,
    /** Present if f16 weights were loaded as bf16. */
    readonly rounding?: Rounding,
  ) {
    this.architecture = architectureOf(config);
    this.headWeight = headWeight(this.architecture.modules(config));
  }

  get dtype(): DType {
    return this.options.dtype;
  }

  /** Runs whole sequences to the hidden states that heads read, [T, outputSize]. */
  forward(batch: RaggedBatch, role: Role = {}): Tensor {
    const { architecture, config, device } = this;
    const { routerAuxLossCoef: coefficient = 0 } = this.options;
    const tape = coefficient > 0 ? openTape() : undefined;
    const balance = tape && new ExpertBalance(device);
    const forwardOf = (own: RaggedBatch) =>
      this.forwardOf(
        own,
        role,
        { attend: (q, k, v, options) => attend(own, q, k, v, options), recurrence: () => own },
        { balance },
      );
    const hidden = this.throughLayers(forwardOf(batch), (stream, layer) => {
      openTape()?.enterLayer(layer);
      const run = (inputs: Stream, own: RaggedBatch) =>
        device.scope(
          () => this.whileWhole(layer, () => architecture.layer(forwardOf(own), config, layer, inputs)),
          `layer ${layer}`,
        );
      return this.options.gradientCheckpointing
        ? checkpoint(stream, run, () => aliasBatch(batch))
        : run(stream, batch);
    });
    const loss = tape && balance?.loss(tape);
    if (loss) tape.auxiliary.push({ loss: device.keep(loss), coefficient, tokens: batch.ids.size });
    return hidden;
  }

  /**
   * Like `forward`, continuing the caller's state of earlier tokens, such as a cache of keys and values. Not
   * differentiable.
   */
  forwardAttending(tokens: TokenBatch, role: Role | StackedRole, past: Past): Tensor {
    const { architecture, config, device, options } = this;
    // Processes would have to gather in step, but the number of tokens that each samples depends on its samples.
    if (options.layers)
      throw invalid('a base that processes hold together cannot sample: set run.shard_base: false');
    const forward = this.forwardOf(tokens, role, past, { adds: !('stack' in role) });
    return this.throughLayers(forward, (stream, layer) =>
      device.scope(() => architecture.layer(forward, config, layer, stream), `layer ${layer}`),
    );
  }

  /** Hidden states of the tokens that represent whole sequences, [B, outputSize], for the sequence classifier. */
  pool(x: Tensor, role: Role): Tensor {
    const project = (y: Tensor, module: string) => {
      const { weight, ...beside } = this.projection(module, undefined, role);
      return linear(y, weight, beside);
    };
    return this.device.scope(() => classifierOf(this.config).pool?.(x, project) ?? x);
  }

  private whileWhole<Result>(layer: number, run: () => Result): Result {
    const { layers } = this.options;
    return layers ? layers.during(layer, run) : run();
  }

  private throughLayers(forward: Forward, run: (stream: Stream, layer: number) => Stream): Tensor {
    const { architecture, config, device } = this;
    return device.scope(() => {
      let stream = device.scope(() => architecture.embed(forward, config));
      for (let layer = 0; layer < config.numLayers; layer++) {
        const inputs = stream;
        stream = run(inputs, layer);
        for (const input of inputs) input.dispose();
      }
      return architecture.finish(forward, config, stream);
    });
  }

  /** @param options `adds`: residuals are added where they arise, not in the norm that follows */
  private forwardOf(
    batch: TokenBatch,
    role: Role | StackedRole,
    { attend, recurrence }: Past,
    { adds = false, balance }: { readonly adds?: boolean; readonly balance?: ExpertBalance | undefined },
  ): Forward {
    const { byName } = this.constantsFor(batch.longest);
    const projection = (module: string, rows: DropoutRows = batch) => this.projection(module, rows, role);
    return {
      ids: batch.ids,
      positions: batch.positions,
      dtype: this.dtype,
      weight: (name) => this.weight(name, role),
      constant: (name) => byName.get(name) as Tensor,
      projection,
      project(x, module, rows) {
        const { weight, ...beside } = projection(module, rows);
        return linear(x, weight, beside);
      },
      projectOnto(residual, x, module) {
        const { weight, ...beside } = projection(module);
        return adds ? [linear(x, weight, beside, residual)] : [linear(x, weight, beside), residual];
      },
      route: (logits, k, normalise) => {
        const { stack, adapterOf: adapter } = 'stack' in role ? role : {};
        const adapters = stack?.hasExperts && adapter ? { adapter, count: stack.adapters.length } : undefined;
        const further = balance?.gradient(logits.shape[1] as number);
        const routing = route(logits, k, normalise, { adapters, balance: further });
        balance?.add(logits, routing);
        const rows = routedRows(batch, role, routing);
        const project = (x: Tensor, of: string) => {
          const { weight, lora, dropout } = this.projection(of, rows, role);
          return linearExperts(x, { weight, lora, stack: stack?.experts(of), dropout }, routing.offsets);
        };
        return { routing, project };
      },
      attend,
      recurrence,
    };
  }

  /** `rows` key the dropout masks; without them there is no dropout. */
  private projection(module: string, rows: DropoutRows | undefined, role: Role | StackedRole): Projection {
    const weight = this.weight(`${module}.weight`, role);
    const bias = role.adapter?.saved(`${module}.bias`) ?? this.weights.get(`${module}.bias`);
    if ('stack' in role) {
      const pairs = role.stack.pairs(module);
      return { weight, bias, stack: pairs && { pairs, adapter: role.adapterOf } };
    }
    const lora = role.adapter?.pair(module);
    let dropout: Dropout | undefined;
    if (lora && role.dropout && role.adapter && role.adapter.dropout > 0 && rows?.rowIds) {
      dropout = {
        rate: role.adapter.dropout,
        key: role.adapter.dropoutKey(module, role.dropout),
        rowIds: rows.rowIds,
        positions: rows.positions,
      };
    }
    return { weight, bias, lora, dropout };
  }

  /** A weight of the role: its own copy (`modules_to_save`) or the base's. */
  weight(name: string, role: Role = {}): Parameter {
    const found = role.adapter?.saved(name) ?? this.weights.get(name) ?? this.options.layers?.get(name);
    if (!found) throw invalid(`the model has no weight named '${name}'`);
    return found;
  }

  /** The language-model head [vocabSize, outputSize]: its own weight, or the embedding where they are tied. */
  head(role: Role = {}): Parameter {
    if (this.headWeight === undefined) {
      throw invalid(
        `a ${className(this.config)} has no language-model head; expected a model for causal language modelling`,
      );
    }
    return this.weight(this.headWeight, role);
  }

  private constantsFor(needed: number): Constants {
    const { maxPositions } = this.config;
    if (needed > maxPositions) {
      throw invalid(
        `the batch has position ${needed - 1}, and the model reads at most ${maxPositions} (max_position_embeddings)`,
      );
    }
    if (this.constants.positions >= needed) return this.constants;
    let positions = Math.min(FIRST_POSITIONS, maxPositions);
    while (positions < needed) positions = Math.min(2 * positions, maxPositions);
    const made = Object.entries(this.architecture.constants?.(this.config, positions) ?? {});
    this.disposeConstants();
    const byName = new Map(
      made.map(([name, { values, shape }]) => [name, this.device.keep(this.device.tensor(values, shape))]),
    );
    this.constants = { positions, byName };
    return this.constants;
  }

  /**
   * Allocates what forwards over `positions` positions need in addition to the weights, so that one may be captured.
   */
  prepare(positions: number): void {
    this.constantsFor(positions);
  }

  private disposeConstants(): void {
    for (const tensor of this.constants.byName.values()) tensor.dispose();
  }

  dispose(): void {
    for (const { value } of this.weights.values()) value.dispose();
    this.options.layers?.dispose();
    this.disposeConstants();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The keys of dropout masks for rows in the order of experts; undefined where nothing is dropped. */
function routedRows(
  { rowIds, positions }: TokenBatch,
  role: Role | StackedRole,
  { rows }: Routing,
): DropoutRows | undefined {
  if (!rowIds || !('dropout' in role && role.dropout) || !role.adapter?.dropout) return undefined;
  return { rowIds: gatherIds(rowIds, rows), positions: gatherIds(positions, rows) };
}

/** Attention over the sequences of a batch, each alone. */
function attend(
  batch: RaggedBatch,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  { headDim, window, rotary, norms, relative }: AttendOptions,
): Tensor {
  const { cuSeqlens, branch } = batch;
  if (relative) {
    if (branch) refuseBidirectionalBranches();
    return disentangledAttention(q, k, v, { headDim, cuSeqlens, ...relative });
  }
  if (branch && window !== undefined) refuseWindowedBranches(batch, window);
  const turned = (x: Tensor) => (rotary ? rope(x, headDim, rotary) : x);
  const queries = norms ? rmsNorm(q, norms.q, norms.eps) : q;
  const keys = norms ? rmsNorm(k, norms.k, norms.eps) : k;
  return attention(turned(queries), turned(keys), v, { headDim, cuSeqlens, branch, window });
}

function refuseBidirectionalBranches(): never {
  throw invalid(
    'the batch has branches, and every token of this model sees all others of its sequence; give each prefix as a sequence of its own',
  );
}

/** A window counts tokens in the order of storage, and so would count the tokens of other branches. */
function refuseWindowedBranches({ offsets }: RaggedBatch, window: number): void {
  const at = offsets.findIndex((begin, s) => s > 0 && begin - (offsets[s - 1] as number) > window);
  if (at < 0) return;
  throw invalid(
    `sequence ${at - 1} of the batch has ${(offsets[at] as number) - (offsets[at - 1] as number)} tokens with its branches, ` +
      `more than the sliding window of ${window}; give each branch as a sequence of its own`,
  );
}
