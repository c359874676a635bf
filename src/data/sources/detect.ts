import type { Row } from '../columns.js';
import { bigBenchMistake } from './big-bench-mistake.js';
import { llamaFactory } from './llama-factory.js';
import { mathShepherd } from './math-shepherd.js';
import { mathStepDpo } from './math-step-dpo.js';
import { type Prm800kOptions, prm800k } from './prm800k.js';
import { prmbench } from './prmbench.js';
import { problems } from './problems.js';
import { processbench } from './processbench.js';
import { record } from './record.js';
import { type ReadingOptions, SOURCE_NAMES, type Source, type SourceName } from './source.js';
import { stepwise } from './stepwise.js';
import { trl } from './trl.js';
import { turns } from './turns.js';

/** The options of all layouts. */
export type ConversionOptions = Prm800kOptions & ReadingOptions;

const sources: Readonly<Record<SourceName, Source<ConversionOptions>>> = {
  prm800k,
  processbench,
  prmbench,
  big_bench_mistake: bigBenchMistake,
  stepwise,
  math_shepherd: mathShepherd,
  math_step_dpo: mathStepDpo,
  record,
  problems,
  turns,
  trl,
  llama_factory: llamaFactory,
};

/** The layout of that name. */
export function sourceNamed(name: SourceName): Source<ConversionOptions> {
  return sources[name];
}

/** The layout whose columns the row has, or undefined. */
export function detectSource(row: Row): Source<ConversionOptions> | undefined {
  return SOURCE_NAMES.map(sourceNamed).find((source) => source.matches(row));
}
