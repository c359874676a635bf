/** The modules of a model's two ends: head and embedding. */
import { type ModuleSpec, moduleSpec } from '../weights/modules.js';
import type { ModelConfig } from './config.js';
import { publishedHead } from './heads.js';

/** The modules of the head: `lm_head`, `score`, or those of a published class. */
export function headModules(config: ModelConfig): readonly ModuleSpec[] {
  const { head, outputSize, vocabSize } = config;
  const init = { kind: 'normal', deviation: config.initializerRange } as const;
  if ('numLabels' in head) {
    const { module = 'score', hidden } = publishedHead(head) ?? {};
    const bias = ('bias' in head && head.bias) ?? false;
    const score = moduleSpec('score', module, [head.numLabels, outputSize], init, { bias });
    if (hidden === undefined) return [score];
    return [moduleSpec('pooler', hidden, [outputSize, outputSize], init, { bias: true }), score];
  }
  const lmHead = moduleSpec('head', 'lm_head', [vocabSize, outputSize], init);
  return [config.tieWordEmbeddings ? { ...lmHead, weights: [] } : lmHead];
}

/** The embedding of the tokens, [vocabSize, outputSize], which the head shares where they are tied. */
export function embeddingModule(name: string, config: ModelConfig): ModuleSpec {
  const tied = config.head.kind === 'causal' && config.tieWordEmbeddings;
  const init = { kind: 'normal', deviation: config.initializerRange } as const;
  return moduleSpec(tied ? 'tiedEmbedding' : 'embedding', name, [config.vocabSize, config.outputSize], init);
}
