/** Language modelling of step-by-step solutions: how the embedded arithmetic base is made. */
import { type Dataset, dataset } from '../../data/dataset.js';
import { limited, solutionRank } from '../../data/limit.js';
import { problemKey } from '../../data/overlap.js';
import { solutionSegments } from '../../data/solution.js';
import { type SummarizedSolution, summarizeTrainingData } from '../../data/summary.js';
import { conversationSegments } from '../../data/turn-segments.js';
import type { StepRecord } from '../../records/record.js';
import { refuseTurns } from '../../records/turns.js';
import { configuredRecords } from '../../run/parts.js';
import { maskedSequence, type TrainingSequence } from '../../sequences/sequence.js';
import { toLog } from '../../terminal/log.js';
import { segmentTokenizer, type TokenizedSequence } from '../../tokenizer/segments.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { Method, OpenRun, RunData } from '../../train/method.js';
import { configuredTrainee, type Trainee, traineeRole } from '../../train/roles/trainee.js';
import { supervisedStage } from '../../train/supervised.js';
import { accuracySummary, answerAccuracy, ofValidation } from '../../train/token-accuracy.js';
import type { PretrainRunConfig } from './config.js';

export interface PretrainData extends RunData {
  readonly train: Dataset<TrainingSequence>;
  readonly validation: Dataset<TrainingSequence>;
}

type PretrainRun = OpenRun<PretrainRunConfig, PretrainData, Trainee>;

export const pretrain: Method<PretrainRunConfig, PretrainData, Trainee> = {
  async data(config, tokenizer) {
    const { parts, reports } = await configuredRecords(config.data);
    const sequencesOf = (records: readonly StepRecord[]) =>
      pretrainSequences(records, tokenizer, learnedParts(config), config.data.max_length);
    return {
      train: sequencesOf(parts.train),
      validation: sequencesOf(limited(parts.validation, config.eval.max_samples, config.data, solutionRank)),
      summary: summarizeTrainingData({
        train: parts.train.map(summarized),
        validation: parts.validation.map(summarized),
        test: parts.test.map(summarized),
      }),
      reports,
      close() {},
    };
  },
  preview(config, tokenizer) {
    const sequenceOf = wholeSequence(tokenizer, learnedParts(config));
    return (record) => {
      const steps = `${record.turns ? 'conversation' : 'solution'} of ${record.steps.length} ${record.turns ? 'turns' : 'steps'}`;
      return [{ title: steps, sequence: sequenceOf(record) }];
    };
  },
  memory: () => [traineeRole({})],
  roles: (context) => configuredTrainee(context),
  stages(open) {
    const { config, data, roles } = open;
    const { decoder, role, trained } = roles;
    return [
      supervisedStage({
        name: 'pretrain',
        decoder,
        role,
        parameters: trained,
        sequences: data.train,
        optimization: config.pretrain,
        microBatchTokens: open.microBatchTokens('pretrain'),
        best: 'token_accuracy',
        seed: config.run.seed,
        tokens: config.run.max_tokens,
        shuffle: config.pretrain.shuffle,
        async validate(stop) {
          const metrics = await heldOutAccuracy(open);
          return stop.aborted ? undefined : metrics;
        },
      }),
    ];
  },
  save: ({ roles, run }) => roles.save((name) => run.file(name)),
  async evaluate(open) {
    const measured = await heldOutAccuracy(open);
    return { metrics: ofValidation(measured), summary: accuracySummary('answers', 'tokens', measured) };
  },
};

function learnedParts({ pretrain }: PretrainRunConfig): 'results' | 'steps' {
  return pretrain.loss_on === 'answers' ? 'results' : 'steps';
}

/** Labels of steps are not learned, so that no class of them is rare or lacking. */
function summarized({ problem, steps, context_steps }: StepRecord): SummarizedSolution {
  const labels = steps.map(() => null);
  return { key: problemKey(problem), labels, context_steps, text: () => problem };
}

function heldOutAccuracy(open: PretrainRun) {
  return answerAccuracy(open.roles, open.data.validation, open.microBatchTokens('pretrain'));
}

/**
 * Makes the tokens of a whole solution, with the tokenizer's end token; see `solutionSegments` for the loss mask. The turns of a
 * conversation are learned, each with the mark that ends it.
 *
 * @throws DataError for a conversation that the chat template does not read
 */
function wholeSequence(
  tokenizer: Tokenizer,
  learn: 'steps' | 'results',
): (record: StepRecord) => TokenizedSequence {
  const tokenize = segmentTokenizer(tokenizer);
  const end = tokenizer.eosId === undefined ? '' : tokenizer.decode([tokenizer.eosId]);
  return (record) => {
    if (!record.turns)
      return tokenize(solutionSegments(record, { learn, end, learnBreak: learn === 'steps' }), {
        specialTokens: 'start',
      });
    if (learn === 'results')
      refuseTurns(record, 'pretrain.loss_on "answers" learns results of steps; set it to "all"');
    // The results of the last turn are followed by nothing.
    const segments = conversationSegments(tokenizer, record, { learn: true }).slice(0, -1);
    return tokenize(segments, { specialTokens: 'none' });
  };
}

/**
 * Whole solutions as tokens. Only tokens and masks are kept: targets take many times the memory, and are made when they are wanted.
 */
export function pretrainSequences(
  records: readonly StepRecord[],
  tokenizer: Tokenizer,
  learn: 'steps' | 'results',
  maxLength: number,
): Dataset<TrainingSequence> {
  const sequenceOf = wholeSequence(tokenizer, learn);
  const kept: { readonly sequence: Pick<TokenizedSequence, 'ids' | 'lossMask'>; readonly row: number }[] = [];
  for (const [row, record] of records.entries()) {
    const { ids, lossMask } = sequenceOf(record);
    if (ids.length <= maxLength) kept.push({ sequence: { ids, lossMask }, row });
  }
  const tooLong = records.length - kept.length;
  if (tooLong > 0)
    toLog(`${tooLong} solutions are longer than data.max_length ${maxLength} and are left out`);
  return dataset(kept.length, (i) => {
    const { sequence, row } = kept[i] as (typeof kept)[number];
    return maskedSequence(sequence, row);
  });
}
