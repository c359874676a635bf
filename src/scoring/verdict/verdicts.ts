/** Judging held-out steps: the probability of each verdict word after each step, and the verdict read from it. */

import { type Dataset, indices } from '../../data/dataset.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { exp } from '../../native/elementary.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { scoreRows } from '../../sequences/forward.js';
import type { VerdictSequence } from '../../sequences/sequence.js';
import { notFinite } from '../scorer.js';
import type { JudgedVerdict } from './judged.js';
import { judgeWrittenVerdicts, type WrittenJudgeOptions } from './written-verdicts.js';

export interface JudgeOptions extends Omit<WrittenJudgeOptions, 'tokenizer'> {
  /** Needed where answers have reasons, which the model then writes itself. */
  readonly tokenizer?: WrittenJudgeOptions['tokenizer'];
}

/** Every labelled verdict of the sequences, in order. */
export async function judgeVerdicts(
  decoder: Decoder,
  role: Role,
  sequences: Dataset<VerdictSequence>,
  { threshold, microBatchTokens, votes, signal, onProgress, tokenizer }: JudgeOptions,
): Promise<JudgedVerdict[]> {
  if (tokenizer && tokenizer.template.rationaleTokens > 0) {
    const options = { tokenizer, threshold, microBatchTokens, votes, signal, onProgress };
    return judgeWrittenVerdicts(decoder, role, sequences, options);
  }
  const judged: JudgedVerdict[] = [];
  let done = 0;
  const length = (i: number) => sequences.get(i).ids.length;
  const judgeGroup = async (group: readonly number[]) => {
    const found: JudgedVerdict[] = [];
    const items = group.map((solution) => {
      const sequence = sequences.get(solution);
      return {
        solution,
        sequence,
        rows: sequence.verdicts.flatMap(({ positive, negative }) => [...positive, ...negative]),
      };
    });
    if (items.some(({ rows }) => rows.length > 0)) {
      const scores = decoder.device.scope(() => scoreRows(decoder, role, items), 'judge');
      const [logprobs, argmax] = await Promise.all([scores.logprobs.readFloats(), scores.argmax.read()]);
      for (const tensor of Object.values(scores)) tensor.dispose();
      let at = 0;
      const readWord = (word: readonly { readonly token: number }[]) => {
        let log = 0;
        let greedy = true;
        for (const { token } of word) {
          log += logprobs[at] as number;
          greedy &&= argmax[at] === token;
          at++;
        }
        return { log, greedy };
      };
      for (const { solution, sequence } of items) {
        for (const { step, label, positive, negative } of sequence.verdicts) {
          const yes = readWord(positive);
          const no = readWord(negative);
          if (label === null) continue;
          const probability = 1 / (1 + exp(no.log - yes.log));
          if (Number.isNaN(probability))
            throw notFinite('the model', `step ${step + 1} of solution ${solution + 1}`);
          const greedy = yes.greedy ? 1 : no.greedy ? 0 : undefined;
          const verdict = threshold === 'greedy' ? greedy : probability >= threshold ? 1 : 0;
          found.push({
            solution,
            step,
            label,
            verdict,
            logPositive: yes.log,
            logNegative: no.log,
            probability,
          });
        }
      }
    }
    return found;
  };
  const groups = groupBySize(indices(sequences), length, microBatchTokens);
  await overGroups(decoder.device, groups, judgeGroup, {
    signal,
    onGroup(found, group) {
      judged.push(...found);
      done += group.length;
      onProgress?.(done);
    },
  });
  return judged;
}
