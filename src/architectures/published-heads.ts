/** Heads of classes that are published with a reward model, in code of its own, instead of in transformers. */
import type { Fields } from '../weights/fields.js';

/** The modules of such a head. */
export interface PublishedHead {
  /** The name in `architectures` of config.json. */
  readonly className: string;
  /** Name of the module that makes the outputs. */
  readonly module: string;
  /** Name of a linear module before it, with a ReLU after. */
  readonly hidden?: string;
}

interface PublishedClass extends PublishedHead {
  /** Class prefix of its trunk. */
  readonly classPrefix: string;
  readonly kind: 'token' | 'sequence';
  readonly labels: number | ((fields: Fields) => number);
  readonly bias: (fields: Fields) => boolean;
}

const always = () => true;
const qwen = { classPrefix: 'Qwen2', module: 'score.2', hidden: 'score.0', bias: always } as const;
const reasonEval = {
  kind: 'token',
  module: 'score_head',
  labels: (fields: Fields) => fields.integer('score_dimension', 1, 100_000) ?? 3,
  bias: (fields: Fields) => fields.boolean('use_bias') ?? false,
} as const;

const CLASSES: readonly PublishedClass[] = [
  // Qwen2.5-Math-PRM and -RM: modeling_qwen2_rm.py in their repositories.
  { ...qwen, className: 'Qwen2ForProcessRewardModel', kind: 'token', labels: 2 },
  { ...qwen, className: 'Qwen2ForRewardModel', kind: 'sequence', labels: 1 },
  // Skywork-o1-Open-PRM: the value head of TRL's AutoModelForCausalLMWithValueHead.
  {
    className: 'Qwen2ForPrmModel',
    classPrefix: 'Qwen2',
    kind: 'token',
    module: 'v_head.summary',
    labels: 1,
    bias: always,
  },
  // ReasonEval: examples.py of its repository.
  { ...reasonEval, className: 'ReasonEval_7B', classPrefix: 'Mistral' },
  { ...reasonEval, className: 'ReasonEval_34B', classPrefix: 'Llama' },
];

/** Reads the keys of such a class, also the one that names its code, which nothing runs; undefined for any other name. */
export function parsePublishedHead(fields: Fields, classPrefix: string, name: string | undefined) {
  const found = CLASSES.find((each) => each.className === name && each.classPrefix === classPrefix);
  if (!found) return undefined;
  fields.nested('auto_map');
  const { kind, labels, bias, className, module, hidden } = found;
  const numLabels = typeof labels === 'number' ? labels : labels(fields);
  const published: PublishedHead = { className, module, ...(hidden === undefined ? {} : { hidden }) };
  return { kind, numLabels, labels: undefined, bias: bias(fields), dropout: 0, published };
}
