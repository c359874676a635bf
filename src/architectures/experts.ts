/**
 * Mixtures of experts in place of an MLP (arXiv 2101.03961): a router gives each token to a few of many small MLPs with gates.
 *
 *     p = softmax(router(m));  y = Σ_j p_j · down_j(silu(gate_j(m)) · up_j(m))       j: the k largest p
 *
 * Where one more expert reads every token, y += σ(g(m)) · down(silu(gate(m)) · up(m)).
 */
import { combineExperts } from '../ops/experts.js';
import { linear, linearSwiglu } from '../ops/gemm.js';
import { add, gatherRows } from '../ops/memory.js';
import { sigmoidGate, swiglu } from '../ops/mlp.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import { type Initializer, MAX_EXPERTS, type ModuleSpec, moduleSpec } from '../weights/modules.js';
import type { Constant, Forward, LayerMemory } from './architecture.js';

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
  /** Width inside the expert that reads every token; undefined: there is none. */
  readonly sharedSize?: number;
  /** Checkpoints may have the experts of a layer in two tensors (`weights/fused-experts.ts`), and PEFT knows no others. */
  readonly fused?: boolean;
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
  const perToken = parsePerToken(fields, count, numLayers);
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

function parsePerToken(fields: Fields, count: number, numLayers: number): number {
  if (numLayers * count > MAX_OF_MODEL)
    fields.fail('num_experts', `at most ${MAX_OF_MODEL} experts in ${numLayers} layers together`);
  const perToken = fields.integer('num_experts_per_tok', 1) ?? 8;
  if (count > 0 && perToken > count) fields.fail('num_experts_per_tok', `at most num_experts (${count})`);
  return perToken;
}

/** The same of a model in which every layer has experts, and one more that reads every token. */
export function parseSharedExperts(fields: Fields, numLayers: number): ExpertsConfig {
  const count = fields.integer('num_experts', 1, MAX_EXPERTS) ?? 256;
  return {
    count,
    perToken: parsePerToken(fields, count, numLayers),
    intermediateSize: fields.integer('moe_intermediate_size', 1) ?? 512,
    sharedSize: fields.integer('shared_expert_intermediate_size', 1) ?? 512,
    normalise: true,
    sparse: new Array<boolean>(numLayers).fill(true),
    fused: true,
  };
}

export function sharedExpertsJson({
  count,
  perToken,
  intermediateSize,
  sharedSize,
}: ExpertsConfig): JsonObject {
  return {
    num_experts: count,
    num_experts_per_tok: perToken,
    moe_intermediate_size: intermediateSize,
    shared_expert_intermediate_size: sharedSize as number,
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
  { count, perToken, intermediateSize, sharedSize, fused = false }: ExpertsConfig,
  drawn: Initializer,
): ModuleSpec[] {
  const experts = (
    projection: string,
    shape: readonly [number, number],
    [name, part, parts]: readonly [string, number, number],
  ) =>
    Array.from({ length: count }, (_, index) =>
      moduleSpec('linear', `${prefix}.experts.${index}.${projection}`, shape, drawn, {
        isParameter: fused,
        expert: {
          of: `${prefix}.experts.${projection}`,
          index,
          count,
          perToken,
          ...(fused ? { stored: { name: `${prefix}.experts.${name}`, part, parts } } : {}),
        },
      }),
    );
  const shared = (projection: string, shape: readonly [number, number]) =>
    moduleSpec('linear', `${prefix}.shared_expert${projection}`, shape, drawn);
  return [
    moduleSpec('router', `${prefix}.gate`, [count, hiddenSize], drawn, { isParameter: fused }),
    ...experts('gate_proj', [intermediateSize, hiddenSize], ['gate_up_proj', 0, 2]),
    ...experts('up_proj', [intermediateSize, hiddenSize], ['gate_up_proj', 1, 2]),
    ...experts('down_proj', [hiddenSize, intermediateSize], ['down_proj', 0, 1]),
    ...(sharedSize === undefined
      ? []
      : [
          shared('.gate_proj', [sharedSize, hiddenSize]),
          shared('.up_proj', [sharedSize, hiddenSize]),
          shared('.down_proj', [hiddenSize, sharedSize]),
          shared('_gate', [1, hiddenSize]),
        ]),
  ];
}

/** The constant by which one number of each token becomes `hiddenSize` of them, for {@link mixture}. */
export const SPREAD = 'spread';
export const spreadConstant = (hiddenSize: number): Constant => ({
  values: new Float32Array(hiddenSize).fill(1),
  shape: [hiddenSize, 1],
});

/** x [T, hidden] through the experts of `prefix`. */
export function mixture(forward: Forward, config: ExpertsConfig, prefix: string, x: Tensor): Tensor {
  const { perToken: k, normalise, sharedSize } = config;
  const { routing, project } = forward.route(forward.project(x, `${prefix}.gate`), k, normalise);
  const rows = gatherRows(x, routing.rows);
  const [gate, up] = [
    project(rows, `${prefix}.experts.gate_proj`),
    project(rows, `${prefix}.experts.up_proj`),
  ];
  const y = project(swiglu(gate, up), `${prefix}.experts.down_proj`);
  const chosen = combineExperts(y, routing);
  return sharedSize === undefined ? chosen : add(chosen, sharedExpert(forward, prefix, x));
}

/** σ(g(x)) · down(silu(gate(x)) · up(x)), [T, hidden]. */
function sharedExpert({ projection, project, constant }: Forward, prefix: string, x: Tensor): Tensor {
  const name = (module: string) => `${prefix}.shared_expert.${module}`;
  const inner = linearSwiglu(x, projection(name('gate_proj')), projection(name('up_proj')));
  // No kernel has a gate of one number: a product of one column gives it to every feature, as it is.
  const gate = linear(project(x, `${prefix}.shared_expert_gate`), {
    name: SPREAD,
    value: constant(SPREAD),
  });
  return sigmoidGate(gate, project(inner, name('down_proj')));
}

/** Bytes that a layer saves and holds for a token, in place of `gates` tensors of an MLP's inner width. */
export function expertsMemory(
  { count, perToken, intermediateSize, sharedSize }: ExpertsConfig,
  hiddenSize: number,
  { bytes, rank }: { readonly bytes: number; readonly rank: number },
  gates: number,
): Pick<LayerMemory, 'saved' | 'backward'> {
  const routed = perToken * (2 * hiddenSize + gates * intermediateSize);
  const choice = 4 * (4 * perToken + count);
  // Its inner tensors, its output, the gate of all features, and their product.
  const shared = sharedSize === undefined ? 0 : gates * sharedSize + 3 * hiddenSize;
  const ranks = 3 * perToken + (shared > 0 ? 4 : 0);
  return {
    // The gathered rows and the outputs of the experts, whose weights need them.
    saved: (routed + count + shared) * bytes + choice + 4 * ranks * rank,
    backward: (routed + count + shared) * bytes,
  };
}
