/**
 * A method that learns from answers: once, from those of the data, or in rounds of sampling, labelling, training and evaluation, from
 * its own. Only its objective and its kind of data are its own.
 */
import { inMemory } from '../../data/dataset.js';
import type { Method, OpenRun } from '../../train/method.js';
import type { OfflineItem } from '../../train/offline/items.js';
import type { ItemKind } from '../../train/offline/kinds.js';
import { offlineMethod } from '../../train/offline/method.js';
import type { Trainee } from '../../train/trainee.js';
import type { RoundsConfig } from './config.js';
import { askedProblems } from './problems.js';
import type { AnswerData, AskingRun } from './run.js';
import { evaluation, solvedReport, validation } from './solving.js';
import { loadsReference, type RoundObjective, roundStages } from './stages.js';

export interface AnswerMethodOptions<Config> {
  readonly kind: ItemKind | ((config: Config) => ItemKind);
  readonly stage: (config: Config) => Omit<RoundObjective, 'kind'>;
}

export function answerMethod<Config extends RoundsConfig>(
  options: AnswerMethodOptions<Config>,
): Method<Config, AnswerData, Trainee> {
  const once = offlineMethod<Config>(options);
  const settingsOf = (config: Config) => options.stage(config).settings;
  const inRounds = (config: Config) => settingsOf(config).iterations > 0;
  const asks = (config: Config) => inRounds(config) || config.eval.solve;
  return {
    ...once,
    async data(config, tokenizer, signal) {
      if (!asks(config)) return once.data(config, tokenizer, signal);
      const { asked, summary, reports } = await askedProblems(config, tokenizer);
      if (inRounds(config)) {
        const none = inMemory<OfflineItem>([]);
        return { items: { train: none, validation: none, test: none }, asked, summary, reports, close() {} };
      }
      const data = await once.data(config, tokenizer, signal);
      return data && { ...data, asked };
    },
    memory: (config) => [
      ...once.memory(config),
      ...(loadsReference(config, settingsOf(config)) ? [{ role: 'reference', held: 'frozen' } as const] : []),
    ],
    sampling: (config) =>
      asks(config) ? { longest: config.data.max_length, rows: config.sampling.max_rows } : undefined,
    stages(open) {
      const { kind, stage } = options;
      const learned = stage(open.config);
      if (!isAsking(open)) return once.stages(open);
      if (!inRounds(open.config)) {
        const { settings } = learned;
        return [
          evaluation(open, 0, settings),
          ...once.stages(open),
          evaluation(open, 1, settings),
          ...validation(open, settings),
        ];
      }
      return roundStages(open, { ...learned, kind: typeof kind === 'function' ? kind(open.config) : kind });
    },
    // The first round's candidates and their labels come from the base alone, whatever is learned from them.
    shared(config) {
      if (!inRounds(config)) return [];
      const unread = ['method', options.stage(config).name];
      return [
        { stage: 'eval-0', unread: [...unread, 'judge'] },
        { stage: 'samples-1', unread: [...unread, 'judge'] },
        { stage: 'labels-1', unread },
      ];
    },
    async evaluate(open, trained, signal) {
      if (!isAsking(open)) return once.evaluate(open, trained, signal);
      if (inRounds(open.config))
        return solvedReport(open, settingsOf(open.config).iterations, trained.tokens);
      const measured = await once.evaluate(open, trained, signal);
      const solved = await solvedReport(open, 1, trained.tokens);
      return measured && { ...solved, metrics: { ...measured.metrics, ...solved.metrics } };
    },
  };
}

function isAsking<Config extends RoundsConfig>(
  open: OpenRun<Config, AnswerData, Trainee>,
): open is OpenRun<Config, AnswerData, Trainee> & AskingRun {
  return open.data.asked !== undefined;
}
