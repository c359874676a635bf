/**
 * steptrain for programs: devices, models, judging and scoring, records, answers, runs, solving, serving. Who writes loops of
 * their own imports the parts of models from `steptrain/ops` and those of training and evaluation from `steptrain/train`.
 *
 * @packageDocumentation
 */

export { answersEqual } from '../answers/equal.js';
export { type ExtractedAnswer, extractAnswer } from '../answers/extract.js';
export { type Grade, type GradeOptions, grade } from '../answers/grade.js';
export {
  type LoadModelOptions,
  loadModel,
  loadTokenizer,
  Model,
  type ModelGenerateOptions,
  type ScoreOptions,
  type SequenceClasses,
  type SequenceScore,
} from '../api/model.js';
export { loadProblems } from '../data/benchmarks/load.js';
export type { Problem } from '../data/benchmarks/problem.js';
export { type LoadOptions as RecordOptions, type LoadReport, loadRecords } from '../data/load.js';
export { type EvaluateOptions, evaluate } from '../eval/correction.js';
export type { EvalReport, VerdictReport } from '../eval/reports/eval-report.js';
export { formatEvalTable } from '../eval/reports/report-table.js';
export {
  evaluateSolving,
  type SolvingOptions,
  type SolvingResult,
} from '../eval/solving/evaluate-solving.js';
export { formatSolvingTable, type SolvingReport } from '../eval/solving/solving-report.js';
export { Conversation } from '../generate/conversation.js';
export type { Sample } from '../generate/rows/sample-row.js';
export { type ResumeRunOptions, resume, type TrainOptions, type TrainResult, train } from '../methods/run.js';
export type { MethodName, RunConfigInput } from '../methods/table.js';
export { type MergeOptions, mergeAdapter } from '../models/merge.js';
export { StepTrainError } from '../native/errors.js';
export type { Step, StepLabel, StepRecord } from '../records/record.js';
export { Device, type DeviceOptions, openDevice } from '../runtime/device.js';
export { type JudgeStepsOptions, judgeSolutions, judgeSteps, type StepJudgement } from '../scoring/judge.js';
export { openScorer } from '../scoring/open.js';
export type { Scorer } from '../scoring/scorer.js';
export { type RunningServer, type ServeOptions, serve } from '../serve/server.js';
export { byteTokenizer } from '../tokenizer/byte.js';
export type { ChatMessage, Tokenizer } from '../tokenizer/tokenizer.js';
export type { StepEvent } from '../train/step-event.js';
