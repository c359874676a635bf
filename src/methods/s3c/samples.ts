/** Samples of a run as tokens: which are trained on, which are held out. */
import { correctionVariant, hasCorrection, isTrained } from '../../data/corrections/variants.js';
import { type Dataset, indices } from '../../data/dataset.js';
import { limited, solutionRank } from '../../data/limit.js';
import { type Part, smallestRanks } from '../../data/split.js';
import { plural } from '../../native/shown.js';
import type { StepRecord } from '../../records/record.js';
import { problemText } from '../../records/same-text.js';
import { epochOrder } from '../../sequences/batching.js';
import { PackedSequences } from '../../sequences/packed.js';
import type { TrainingSequence } from '../../sequences/sequence.js';
import { toLog, warn } from '../../terminal/log.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { S3cRunConfig } from './config.js';
import { correctionTokenizer } from './sequences.js';
import { checkTurnSettings, correctedTurns, endsRight } from './turns.js';

export interface CorrectionSamples {
  readonly train: Dataset<TrainingSequence>;
  readonly validation: Dataset<TrainingSequence>;
  /** Samples of the test part, up to `eval.max_samples` with a correction. */
  readonly test: readonly StepRecord[];
  /** A record of each problem of the test part that has an answer, with or without a correction, up to `eval.max_samples`. */
  readonly problems: readonly StepRecord[];
}

/** Takes records one by one; keeps tokens of them, and the records of the test part. */
export class SampleCollector {
  private readonly train = new PackedSequences();
  private readonly validation = new PackedSequences();
  private readonly test: StepRecord[] = [];
  private readonly problems = new Map<string, StepRecord>();
  private readonly corrected: number[] = [];
  private readonly clean: number[] = [];
  private readonly ranks: number[] = [];
  private readonly validationRanks: number[] = [];
  private readonly tokenize: ReturnType<typeof correctionTokenizer>;
  private readonly varied: ReturnType<typeof correctionVariant>;
  private tooLong = 0;
  private endWrong = 0;

  /** @throws DataError for a format or mask that cannot be used */
  constructor(
    private readonly config: S3cRunConfig,
    tokenizer: Tokenizer,
  ) {
    this.tokenize = correctionTokenizer(tokenizer, { format: config.format, mask: config.s3c });
    this.varied = correctionVariant(config.s3c.variant);
  }

  /**
   * The number of its tokens, or undefined where it is left out: too long, or a conversation that ends wrong.
   *
   * @throws DataError for settings that have no meaning for turns, and a conversation that the chat template does not read
   */
  add(part: Part, given: StepRecord): number | undefined {
    const { data, s3c } = this.config;
    if (given.turns) checkTurnSettings(s3c);
    const record = correctedTurns(given);
    if (!endsRight(record)) {
      this.endWrong++;
      return undefined;
    }
    const changed = part === 'train' ? this.varied(record) : record;
    const sequence = this.tokenize(changed);
    if (sequence.ids.length > data.max_length) {
      this.tooLong++;
      return undefined;
    }
    if (part === 'train') {
      if (!isTrained(this.config.s3c.variant, record)) return undefined;
      (hasCorrection(record) ? this.corrected : this.clean).push(this.train.length);
      if (data.max_samples !== 'all') this.ranks.push(solutionRank(record, data.seed));
      this.train.add(sequence);
    } else if (part === 'validation') {
      this.validationRanks.push(solutionRank(record, data.seed));
      this.validation.add(sequence);
    } else if (!record.turns) {
      // Held-out problems are solved without tools.
      const key = problemText(record.problem);
      if (record.gold_answer !== undefined && !this.problems.has(key)) this.problems.set(key, record);
      if (hasCorrection(record)) this.test.push(record);
    }
    return sequence.ids.length;
  }

  finish(): CorrectionSamples {
    const { tooLong, endWrong } = this;
    if (endWrong > 0)
      toLog(`${plural(endWrong, 'conversation')} with a wrong outcome or a wrong last turn: left out`);
    if (tooLong > 0)
      toLog(
        `${tooLong} solutions are longer than data.max_length ${this.config.data.max_length} and are left out`,
      );
    const { data, eval: evaluation } = this.config;
    const rankOf = (index: number) => this.validationRanks[index] as number;
    return {
      train: this.train.dataset(this.chosen()),
      validation: this.validation.dataset(
        limited(indices(this.validation), evaluation.max_samples, data, rankOf),
      ),
      test: limited(this.test, evaluation.max_samples, data, solutionRank),
      problems: limited([...this.problems.values()], evaluation.max_samples, data, solutionRank),
    };
  }

  /** Indices of the training sequences: limited by `data.max_samples`, with as many clean ones as `s3c.clean_ratio` says. */
  private chosen(): number[] {
    const {
      data: { max_samples, seed },
      s3c: { clean_ratio },
      corrections,
    } = this.config;
    // If the run makes the samples, `max_samples` limits the solutions instead.
    const isLimited = max_samples !== 'all' && corrections === 'none';
    const kept = isLimited ? new Set(smallestRanks(this.ranks, max_samples)) : undefined;
    const isKept = (index: number) => kept === undefined || kept.has(index);
    if (clean_ratio === 'as_is') return Array.from({ length: this.train.length }, (_, i) => i).filter(isKept);
    const own = this.corrected.filter(isKept);
    const clean = this.clean.filter(isKept);
    const count = Math.round(clean_ratio * own.length);
    if (count > 0 && clean.length === 0)
      warn(
        `s3c.clean_ratio ${clean_ratio} asks for ${plural(count, 'solution')} without a wrong step beside ${plural(own.length, 'sample')} with one, and the ` +
          'training data has none',
      );
    return [...own, ...repeated(clean, count, seed)];
  }
}

/** Domain of the random stream that chooses clean solutions. */
const CLEAN = 0x636c6e;

/** `count` of the items: each as often as any other or once more, those chosen by the seed. */
function repeated(items: readonly number[], count: number, seed: number): number[] {
  if (items.length === 0) return [];
  const whole = Array.from({ length: Math.floor(count / items.length) }, () => items).flat();
  const rest = epochOrder(items.length, seed ^ CLEAN, 0).subarray(0, count % items.length);
  return [...whole, ...Array.from(rest, (i) => items[i] as number)];
}
