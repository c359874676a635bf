/** The heads of a model: the classes of transformers and their keys in config.json. */
import type { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import { type PublishedHead, parsePublishedHead } from './published-heads.js';

/** A head, by the name of its class. */
export type ModelHead =
  /** `…Model`, or a class whose head is not read: the trunk alone */
  | { readonly kind: 'none' }
  /** `…ForCausalLM`: logits [tokens, vocabSize] by `lm_head`, or by the embedding where they are tied */
  | { readonly kind: 'causal' }
  /** `…ForSequenceClassification`: the classifier (`score`, without a bias, but see `Classifier`) at one token */
  | {
      readonly kind: 'sequence';
      readonly numLabels: number;
      readonly labels: readonly string[] | undefined;
      /** Default false; transformers' classes have none. */
      readonly bias?: boolean;
      readonly published?: PublishedHead;
    }
  /** `…ForTokenClassification`: dropout (in training), then the classifier at every token */
  | {
      readonly kind: 'token';
      readonly numLabels: number;
      readonly labels: readonly string[] | undefined;
      readonly bias: boolean;
      readonly dropout: number;
      readonly published?: PublishedHead;
    };

export type HeadKind = ModelHead['kind'];

const CLASSES: Readonly<Record<HeadKind, string>> = {
  none: 'Model',
  causal: 'ForCausalLM',
  sequence: 'ForSequenceClassification',
  token: 'ForTokenClassification',
};

/** The properties that determine a model's class name. */
interface HeadedModel {
  readonly classPrefix: string;
  readonly head: ModelHead;
}

/** The class name that transformers gives to the model, such as `Qwen2ForCausalLM`. */
export function className({ classPrefix, head }: HeadedModel): string {
  return publishedHead(head)?.className ?? `${classPrefix}${CLASSES[head.kind]}`;
}

/** The modules of a head that no class of transformers has. */
export const publishedHead = (head: ModelHead) => ('published' in head ? head.published : undefined);

/** The head that `architectures` names; the first head if the key is absent. */
export function parseHead(fields: Fields, classPrefix: string, kinds: readonly HeadKind[]): ModelHead {
  const names = kinds.map((kind) => `${classPrefix}${CLASSES[kind]}`);
  const [name = names[0], ...others] = fields.strings('architectures') ?? [];
  const published = others.length === 0 ? parsePublishedHead(fields, classPrefix, name) : undefined;
  if (published) return published;
  const kind = kinds[names.indexOf(name as string)];
  if (kind === undefined || others.length > 0)
    return fields.fail('architectures', `one of ${names.join(', ')}`);
  const { labels, numLabels } = parseLabels(fields);
  const dropout = fields.number('classifier_dropout') ?? fields.number('hidden_dropout');
  const bias = fields.boolean('token_classification_bias');
  if (kind === 'causal' || kind === 'none') return { kind };
  if (kind === 'sequence') return { kind, numLabels, labels };
  return { kind, numLabels, labels, bias: bias ?? true, dropout: dropout ?? 0.1 };
}

/** The keys of config.json that determine the head. */
export function headJson(config: HeadedModel): JsonObject {
  const { head } = config;
  if (publishedHead(head)) return { architectures: [className(config)] };
  const labels = 'numLabels' in head ? (head.labels ?? defaultLabels(head.numLabels)) : undefined;
  return {
    architectures: [className(config)],
    ...(labels === undefined
      ? {}
      : { id2label: { ...labels }, label2id: Object.fromEntries(labels.map((name, id) => [name, id])) }),
    ...(head.kind === 'token'
      ? { classifier_dropout: head.dropout, token_classification_bias: head.bias }
      : {}),
  };
}

function parseLabels(fields: Fields) {
  const count = fields.integer('num_labels', 1, 100_000);
  const names = fields.nested('id2label');
  if (names === undefined) return { numLabels: count ?? 2, labels: undefined };
  const numLabels = Object.keys(names.object).length;
  if (count !== undefined && count !== numLabels)
    fields.fail('num_labels', `as many as id2label has, ${numLabels}`);
  const labels = Array.from({ length: numLabels }, (_, id) => {
    return names.string(String(id)) ?? names.fail(String(id), 'a label for each number from 0 on');
  });
  return { numLabels, labels };
}

function defaultLabels(count: number): readonly string[] {
  return Array.from({ length: count }, (_, id) => `LABEL_${id}`);
}
