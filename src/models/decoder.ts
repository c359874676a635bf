/**
 * A pre-norm decoder (qwen2, qwen3, llama, mistral) as a composition of ops. Weights are frozen and shared; what makes
 * a policy, a reference or a reward model of it is the role, an argument of every forward.
 */
import type { Parameter } from '../autograd/parameters.js';
import { checkpoint } from '../autograd/tape.js';
import { StepTrainError } from '../native/errors.js';
import { attention } from '../ops/attention.js';
import { embedding } from '../ops/embedding.js';
import { type Dropout, linear, linearSwiglu, type Projection } from '../ops/gemm.js';
import { addRmsNorm, rmsNorm } from '../ops/norm.js';
import { type RotaryTable, rope } from '../ops/rope.js';
import type { Device } from '../runtime/device.js';
import type { DType, Tensor } from '../runtime/tensor.js';
import type { Adapter, DropoutSource } from './adapter.js';
import { aliasBatch, type RaggedBatch } from './batch.js';
import { architectureName, type DecoderConfig } from './config.js';
import type { LinearHead } from './heads.js';
import { ropeTable } from './rope.js';

/** What a forward is for. The empty role is the base model: the reference of every other. */
export interface Role {
  readonly adapter?: Adapter | undefined;
  /** Reads the hidden states in place of the head of adapter or base. See `roleHead`. */
  readonly head?: LinearHead | undefined;
  /** In training with lora_dropout: makes the key of the masks. Absent: no dropout. */
  readonly dropout?: DropoutSource | undefined;
}

export interface DecoderOptions {
  /** Dtype of activations. */
  readonly dtype: 'f32' | 'bf16';
  /** Run each layer again in the backward instead of saving its insides. */
  readonly gradientCheckpointing?: boolean;
}

/** What a conversion of weights cost. */
export interface Rounding {
  /** How many values the new dtype could not hold exactly. */
  readonly inexact: number;
  /** Of how many. */
  readonly values: number;
}

/** Rotary tables are made for this many positions first, and grow by doubling. */
const FIRST_POSITIONS = 4096;

export class Decoder {
  private rotary: (RotaryTable & { readonly positions: number }) | undefined;

  constructor(
    readonly device: Device,
    readonly config: DecoderConfig,
    /** By Hugging Face name, such as `model.layers.0.mlp.up_proj.weight`. Owned by the decoder. */
    readonly weights: ReadonlyMap<string, Parameter>,
    readonly options: DecoderOptions,
    /** Where f16 weights were loaded as bf16. */
    readonly rounding?: Rounding,
  ) {}

  get dtype(): DType {
    return this.options.dtype;
  }

  /** Hidden states after the final norm, [T, hidden]. */
  forward(batch: RaggedBatch, role: Role = {}): Tensor {
    const { config } = this;
    this.refuseWindowedBranches(batch);
    const table = this.rotaryTable(batch);
    const first = embedding(batch.ids, this.weight('model.embed_tokens.weight', role), this.dtype);
    let delta = first;
    let residual: Tensor | undefined;
    for (let layer = 0; layer < config.numLayers; layer++) {
      const run = (inputs: readonly Tensor[], own: RaggedBatch) =>
        this.device.scope(() => this.layer(layer, inputs, own, table, role), `layer ${layer}`);
      const inputs = residual ? [delta, residual] : [delta];
      const outputs = this.options.gradientCheckpointing
        ? checkpoint(inputs, run, () => aliasBatch(batch))
        : run(inputs, batch);
      for (const input of inputs) input.dispose();
      [delta, residual] = outputs as [Tensor, Tensor];
    }
    const norm = this.weight('model.norm.weight', role);
    if (!residual) return rmsNorm(delta, norm, config.rmsNormEps);
    return this.device.scope(() => {
      const { y } = addRmsNorm(delta, residual as Tensor, norm, config.rmsNormEps);
      delta.dispose();
      residual?.dispose();
      return y;
    });
  }

  /** [delta, residual] → [delta, residual]: the residual stream is added inside the next norm. */
  private layer(
    layer: number,
    [delta, residual]: readonly Tensor[],
    batch: RaggedBatch,
    table: RotaryTable,
    role: Role,
  ): readonly Tensor[] {
    const { config } = this;
    const { headDim, rmsNormEps: eps } = config;
    const prefix = `model.layers.${layer}`;
    const weight = (name: string) => this.weight(`${prefix}.${name}.weight`, role);
    const projection = (name: string) => this.projection(`${prefix}.${name}`, batch, role);
    const project = (x: Tensor, name: string) => {
      const { weight, ...beside } = projection(name);
      return linear(x, weight, beside);
    };

    const inputNorm = weight('input_layernorm');
    const before = residual
      ? addRmsNorm(delta as Tensor, residual, inputNorm, eps)
      : { y: rmsNorm(delta as Tensor, inputNorm, eps), sum: delta as Tensor };
    let q = project(before.y, 'self_attn.q_proj');
    let k = project(before.y, 'self_attn.k_proj');
    const v = project(before.y, 'self_attn.v_proj');
    if (config.qkNorm) {
      q = rmsNorm(q, weight('self_attn.q_norm'), eps);
      k = rmsNorm(k, weight('self_attn.k_norm'), eps);
    }
    const mixed = attention(
      rope(q, headDim, table, batch.positions),
      rope(k, headDim, table, batch.positions),
      v,
      { headDim, cuSeqlens: batch.cuSeqlens, branch: batch.branch, window: config.slidingWindow[layer] },
    );
    const attended = project(mixed, 'self_attn.o_proj');

    const after = addRmsNorm(attended, before.sum, weight('post_attention_layernorm'), eps);
    const activated = linearSwiglu(after.y, projection('mlp.gate_proj'), projection('mlp.up_proj'));
    return [project(activated, 'mlp.down_proj'), after.sum];
  }

  private projection(module: string, batch: RaggedBatch, role: Role): Projection {
    const lora = role.adapter?.pair(module);
    let dropout: Dropout | undefined;
    if (lora && role.dropout && role.adapter && role.adapter.dropout > 0) {
      dropout = {
        rate: role.adapter.dropout,
        key: role.adapter.dropoutKey(module, role.dropout),
        rowIds: batch.rowIds,
        positions: batch.positions,
      };
    }
    const bias = this.weights.get(`${module}.bias`);
    return { weight: this.weight(`${module}.weight`, role), bias, lora, dropout };
  }

  /** A weight as the role sees it: its own copy (`modules_to_save`) or the base's. */
  weight(name: string, role: Role = {}): Parameter {
    const found = role.adapter?.saved(name) ?? this.weights.get(name);
    if (!found) throw new StepTrainError('E_RANGE', `the model has no weight named '${name}'`);
    return found;
  }

  /** The language-model head [vocabulary, hidden]: its own weight, or the embedding where they are tied. */
  head(role: Role = {}): Parameter {
    if (this.config.head.kind !== 'causal') {
      throw new StepTrainError(
        'E_RANGE',
        `a ${architectureName(this.config)} has no language-model head; expected a model for causal language modelling`,
      );
    }
    return this.weight(this.config.tieWordEmbeddings ? 'model.embed_tokens.weight' : 'lm_head.weight', role);
  }

  /** A window counts tokens as they lie, so that other branches would use it up. */
  private refuseWindowedBranches({ branch, offsets }: RaggedBatch): void {
    if (!branch) return;
    const window = Math.min(...this.config.slidingWindow.map((width) => width ?? Number.POSITIVE_INFINITY));
    const at = offsets.findIndex((begin, s) => s > 0 && begin - (offsets[s - 1] as number) > window);
    if (at < 0) return;
    throw new StepTrainError(
      'E_RANGE',
      `sequence ${at - 1} of the batch has ${(offsets[at] as number) - (offsets[at - 1] as number)} tokens with its branches, ` +
        `more than the sliding window of ${window}; give each branch as a sequence of its own`,
    );
  }

  private rotaryTable(batch: RaggedBatch): RotaryTable {
    const needed = batch.longest;
    const { maxPositions } = this.config;
    if (needed > maxPositions) {
      throw new StepTrainError(
        'E_RANGE',
        `the batch has position ${needed - 1}, and the model reads at most ${maxPositions} (max_position_embeddings)`,
      );
    }
    if (this.rotary && this.rotary.positions >= needed) return this.rotary;
    let positions = Math.min(FIRST_POSITIONS, maxPositions);
    while (positions < needed) positions = Math.min(2 * positions, maxPositions);
    this.rotary?.cos.dispose();
    this.rotary?.sin.dispose();
    const { cos, sin } = ropeTable(this.config.rope, positions);
    const shape = [positions, this.config.headDim / 2];
    this.rotary = {
      cos: this.device.keep(this.device.tensor(cos, shape)),
      sin: this.device.keep(this.device.tensor(sin, shape)),
      positions,
    };
    return this.rotary;
  }

  dispose(): void {
    for (const { value } of this.weights.values()) value.dispose();
    this.rotary?.cos.dispose();
    this.rotary?.sin.dispose();
  }
}
