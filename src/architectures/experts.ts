/**
 * Mixtures of experts in place of an MLP (arXiv 2101.03961): a router gives each token to a few of many small MLPs with gates.
 *
 *     p = softmax(router(m));  y = Σ_j p_j · down_j(silu(gate_j(m)) · up_j(m))       j: the k largest p
 */
import { combineExperts } from '../ops/experts.js';
import { gatherRows } from '../ops/memory.js';
import { swiglu } from '../ops/mlp.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import { type Initializer, MAX_EXPERTS, type ModuleSpec, moduleSpec } from '../weights/modules.js';
import type { Forward, LayerMemory } from './architecture.js';

export interface ExpertsConfig {
  /** Number of experts of each layer. */
  readonly count: number;
  /** Number of experts for each token. */
  readonly perToken: number;
  /** Width inside an expert. */
  readonly intermediateSize: number;
  /** The probabilities of a token's experts are divided by their sum. */
  readonly normalise: boolean;
  /** Per layer: whether it has experts; else it has an MLP. */
  readonly sparse: readonly boolean[];
}

/** Max experts in all layers, with three modules each. Qwen3-235B has 12,032. */
const MAX_OF_MODEL = 2 ** 18;

/** Keys of config.json, with transformers' defaults. */
export function parseExperts(fields: Fields, numLayers: number): ExpertsConfig {
  // transformers 5 writes the second name, everybody reads the first.
  const [hub, local] = ['num_experts', 'num_local_experts'].map((key) => fields.integer(key, 0, MAX_EXPERTS));
  if (hub !== undefined && local !== undefined && hub !== local)
    fields.fail('num_local_experts', `num_experts, ${hub}`);
  const count = hub ?? local ?? 128;
  if (numLayers * count > MAX_OF_MODEL)
    fields.fail('num_experts', `at most ${MAX_OF_MODEL} experts in ${numLayers} layers together`);
  const perToken = fields.integer('num_experts_per_tok', 1) ?? 8;
  if (count > 0 && perToken > count) fields.fail('num_experts_per_tok', `at most num_experts (${count})`);
  const every = fields.integer('decoder_sparse_step', 1) ?? 1;
  const dense = fields.integers('mlp_only_layers') ?? [];
  const sparse = Array.from(
    { length: numLayers },
    (_, layer) => count > 0 && !dense.includes(layer) && (layer + 1) % every === 0,
  );
  return {
    count,
    perToken,
    intermediateSize: fields.integer('moe_intermediate_size', 1) ?? 768,
    normalise: fields.boolean('norm_topk_prob') === true,
    sparse,
  };
}

export function expertsJson({
  count,
  perToken,
  intermediateSize,
  normalise,
  sparse,
}: ExpertsConfig): JsonObject {
  return {
    num_experts: count,
    num_experts_per_tok: perToken,
    moe_intermediate_size: intermediateSize,
    norm_topk_prob: normalise,
    decoder_sparse_step: 1,
    mlp_only_layers: sparse.flatMap((is, layer) => (is ? [] : [layer])),
  };
}

/** Modules of the MLP `prefix`: the router, then each projection of all experts. */
export function expertModules(
  prefix: string,
  hiddenSize: number,
  { count, perToken, intermediateSize }: ExpertsConfig,
  drawn: Initializer,
): ModuleSpec[] {
  const experts = (projection: string, shape: readonly [number, number]) =>
    Array.from({ length: count }, (_, index) =>
      moduleSpec('linear', `${prefix}.experts.${index}.${projection}`, shape, drawn, {
        expert: { of: `${prefix}.experts.${projection}`, index, count, perToken },
      }),
    );
  return [
    moduleSpec('router', `${prefix}.gate`, [count, hiddenSize], drawn),
    ...experts('gate_proj', [intermediateSize, hiddenSize]),
    ...experts('up_proj', [intermediateSize, hiddenSize]),
    ...experts('down_proj', [hiddenSize, intermediateSize]),
  ];
}

/** x [T, hidden] through the experts of `prefix`. */
export function mixture(forward: Forward, config: ExpertsConfig, prefix: string, x: Tensor): Tensor {
  const { perToken: k, normalise } = config;
  const { routing, project } = forward.route(forward.project(x, `${prefix}.gate`), k, normalise);
  const rows = gatherRows(x, routing.rows);
  const [gate, up] = [
    project(rows, `${prefix}.experts.gate_proj`),
    project(rows, `${prefix}.experts.up_proj`),
  ];
  const y = project(swiglu(gate, up), `${prefix}.experts.down_proj`);
  return combineExperts(y, routing);
}

/** Bytes that a layer saves and holds for a token, in place of `gates` tensors of an MLP's inner width. */
export function expertsMemory(
  { count, perToken, intermediateSize }: ExpertsConfig,
  hiddenSize: number,
  { bytes, rank }: { readonly bytes: number; readonly rank: number },
  gates: number,
): Pick<LayerMemory, 'saved' | 'backward'> {
  const routed = perToken * (2 * hiddenSize + gates * intermediateSize);
  const choice = 4 * (4 * perToken + count);
  return {
    // The gathered rows and the outputs of the experts, whose weights need them.
    saved: (routed + count) * bytes + choice + 4 * 3 * rank * perToken,
    backward: (routed + count) * bytes,
  };
}
