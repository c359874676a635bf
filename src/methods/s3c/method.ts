/** `method: s3c`: supervised fine-tuning on solutions that correct themselves, with wrong steps masked. */

import { rowsOf } from '../../config/sampling.js';
import { correctionVariant, hasCorrection } from '../../data/corrections/variants.js';
import {
  correctionMetrics,
  shortCorrectionMetrics,
  solvedCorrections,
} from '../../eval/solving/corrections.js';
import type { Method } from '../../train/method.js';
import { configuredTrainee, type Trainee, traineeRole } from '../../train/roles/trainee.js';
import type { TrainingStage } from '../../train/stage.js';
import { supervisedStage } from '../../train/supervised.js';
import { accuracySummary, answerAccuracy, ofValidation } from '../../train/token-accuracy.js';
import type { S3cRunConfig } from './config.js';
import { type S3cData, s3cData } from './data.js';
import { evaluateRun } from './evaluate-run.js';
import { MAKING, madeSamples, makingStage, type S3cRun } from './making.js';
import type { CorrectionSamples } from './samples.js';
import { asTokenized, correctionTokenizer } from './sequences.js';
import { checkTurnSettings, correctedTurns, endsRight } from './turns.js';

export const s3c: Method<S3cRunConfig, S3cData, Trainee> = {
  data: s3cData,
  preview(config, tokenizer) {
    const tokenize = correctionTokenizer(tokenizer, { format: config.format, mask: config.s3c });
    const varied = correctionVariant(config.s3c.variant);
    return (given) => {
      if (given.turns) checkTurnSettings(config.s3c);
      const record = correctedTurns(given);
      const what = given.turns ? 'conversation' : 'solution';
      const title = !endsRight(record)
        ? `a ${what} that is left out: its outcome or its last turn is wrong`
        : hasCorrection(record)
          ? `a ${what} with a correction`
          : `a clean ${what}`;
      return [{ title, sequence: asTokenized(tokenize(varied(record))) }];
    };
  },
  memory: (config) => [traineeRole(config)],
  sampling: ({ corrections, data }) =>
    corrections === 'none' || corrections.server
      ? undefined
      : { longest: data.max_length, rows: rowsOf(corrections.max_rows) },
  roles: (context) => configuredTrainee(context),
  stages(open) {
    const { given } = open.data;
    if ('samples' in given) return [trainingStage(open, given.samples)];
    const prepare = async () => trainingStage(open, madeSamples(open));
    return [makingStage(open, given.solutions), { name: 's3c', prepare }];
  },
  // Wrong steps are those of the base, whatever is learned from them.
  shared: ({ corrections }) => (corrections === 'none' ? [] : [{ stage: MAKING, unread: ['s3c'] }]),
  save: ({ roles, run }) => roles.save((name) => run.file(name)),
  evaluates: () => 'solves',
  async evaluate(open, { tokens: trained }, signal) {
    const samples = samplesOf(open);
    const measured = await heldOut(open, samples);
    const metrics = ofValidation(measured);
    const report = await evaluateRun(open, samples, signal);
    if (signal.aborted) return undefined;
    const tokens = accuracySummary('solutions', 'learned tokens', measured);
    if (!report) return { metrics, summary: tokens };
    const { 'validation_pass@1': chosen } = report;
    return {
      metrics: { ...metrics, ...shortCorrectionMetrics(report) },
      summary: tokens,
      solved: {
        method: open.config.method,
        unit: 'problems',
        data: { problems: report.greedy.problems, trained_tokens: trained },
        metrics: { ...metrics, ...correctionMetrics(report) },
        ...(chosen === undefined ? {} : { metrics_validation: { 'pass@1': chosen } }),
        models: { trained: { all: solvedCorrections(report) } },
        corrections: report,
      },
    };
  },
};

function trainingStage(open: S3cRun, samples: CorrectionSamples): TrainingStage {
  const { config, roles } = open;
  const { decoder, role, trained } = roles;
  return supervisedStage({
    name: 's3c',
    decoder,
    role,
    parameters: trained,
    sequences: samples.train,
    optimization: config.s3c,
    microBatchTokens: open.microBatchTokens('s3c'),
    best: 'token_accuracy',
    seed: config.run.seed,
    tokens: config.run.max_tokens,
    async validate(stop) {
      const metrics = await heldOut(open, samples);
      return stop.aborted ? undefined : metrics;
    },
  });
}

function samplesOf(open: S3cRun): CorrectionSamples {
  const { given } = open.data;
  return 'samples' in given ? given.samples : madeSamples(open);
}

function heldOut({ roles, microBatchTokens }: S3cRun, { validation }: CorrectionSamples) {
  return answerAccuracy(roles, validation, microBatchTokens('s3c'));
}
