/** The modules of a model's two ends: head and embedding. */
import { type ModuleSpec, moduleSpec } from '../weights/modules.js';
import type { ModelConfig } from './config.js';

/** `lm_head` or `score`. */
export function headModule(config: ModelConfig): ModuleSpec {
  const { head, outputSize, vocabSize } = config;
  const init = { kind: 'normal', deviation: config.initializerRange } as const;
  if ('numLabels' in head) {
    const bias = head.kind === 'token' && head.bias;
    return moduleSpec('score', 'score', [head.numLabels, outputSize], init, { bias });
  }
  const lmHead = moduleSpec('head', 'lm_head', [vocabSize, outputSize], init);
  return config.tieWordEmbeddings ? { ...lmHead, weights: [] } : lmHead;
}

/** The embedding of the tokens, [vocabSize, outputSize], which the head shares where they are tied. */
export function embeddingModule(name: string, config: ModelConfig): ModuleSpec {
  const tied = config.head.kind === 'causal' && config.tieWordEmbeddings;
  const init = { kind: 'normal', deviation: config.initializerRange } as const;
  return moduleSpec(tied ? 'tiedEmbedding' : 'embedding', name, [config.vocabSize, config.outputSize], init);
}
