/**
 * The API of steptrain: devices and tensors, models with their roles, objectives, custom training steps, step-labelled
 * data, evaluation, answers, and whole runs.
 *
 * @packageDocumentation
 */

// Answers
export { answersEqual, type Equality, type EqualityMethod, type EqualityOptions } from './answers/equal.js';
export {
  type ExtractedAnswer,
  type ExtractionMethod,
  type ExtractionOptions,
  extractAnswer,
} from './answers/extract.js';
export { type Grade, type GradeOptions, grade } from './answers/grade.js';
export {
  type LoadModelOptions,
  loadModel,
  Model,
  type ModelGenerateOptions,
  type ScoreOptions,
  type SequenceClasses,
  type SequenceScore,
} from './api/model.js';
// Models, adapters, heads
export type { AttendOptions } from './architectures/architecture.js';
export type { DtypeName, ModelConfig } from './architectures/config.js';
export type { ModelHead } from './architectures/heads.js';
// Devices and tensors
export type { Parameter, ParameterSpec, TrainedParameters } from './autograd/parameters.js';
export { type ParameterBuffer, TrainableParameters } from './autograd/parameters.js';
export { type Disposable, type Gradients, type Saved, Tape } from './autograd/tape.js';
// Self-correction
export { secondPass } from './corrections/assemble.js';
export {
  type CorrectionEvaluationOptions,
  evaluateCorrections,
} from './corrections/evaluation/evaluate.js';
export type { HeldOutStep } from './corrections/evaluation/prefixes.js';
export type { LayoutName } from './data/benchmarks/layouts.js';
export { type LoadedProblems, loadProblems, type ProblemOptions } from './data/benchmarks/load.js';
export type { Problem } from './data/benchmarks/problem.js';
export type { CorrectionFormat } from './data/corrections/layout.js';
export type { CorrectionReading, CorrectionScope } from './data/corrections/standing.js';
// Step-labelled data and tokenizers
export { type Dataset, dataset, inMemory } from './data/dataset.js';
export { type LoadOptions as RecordOptions, type LoadReport, loadRecords } from './data/load.js';
export type { SeenSteps } from './data/overlap.js';
export type { TemplateChoice } from './data/problems/choices.js';
export type { Fact, Operation } from './data/problems/facts.js';
export { type WordProblemOptions, wordProblems } from './data/problems/generate.js';
export {
  isRightAnswer,
  type JudgedLine,
  type JudgedSolution,
  judgeSolution,
  judgeText,
  type StepError,
} from './data/problems/oracle.js';
export type { Ending, Operand, PlannedStep, WordProblem } from './data/problems/problem.js';
export {
  solutionRecord,
  type WordProblemRecordOptions,
  wordProblemRecords,
} from './data/problems/records.js';
export {
  MISTAKES,
  type Mistake,
  type MistakeOptions,
  rightSolution,
  USUAL_MISTAKES,
} from './data/problems/solution.js';
export type { Part } from './data/split.js';
export {
  type PlaceOptions,
  type SolutionVerdicts,
  type VerdictPlace,
  type VerdictPromptOptions,
  type VerdictTemplate,
  type VerdictTokenizer,
  verdictTokenizer,
} from './data/verdict.js';
// Evaluation
export type { BootstrapOptions, IntervalMetric, Intervals } from './eval/bootstrap.js';
export type { Calibration, ReliabilityBin } from './eval/calibration.js';
export {
  type ComparedMetric,
  type Comparison,
  compareVerdicts,
} from './eval/comparison.js';
export type { VerdictRow } from './eval/dump.js';
export { type EvaluationOptions, evaluateVerdicts, verdictMetrics } from './eval/evaluate.js';
export type { GroupMetrics, GroupsMetrics } from './eval/groups.js';
export type { JudgedVerdict } from './eval/judged-verdict.js';
export {
  type AgreementMetric,
  type AgreementOptions,
  formatAgreement,
  type JudgeAgreement,
  judgeAgreement,
} from './eval/judges/agreement.js';
export { fileJudge } from './eval/judges/file.js';
export { type LlmJudge, type LlmJudgeOptions, type LlmJudgeReport, llmJudge } from './eval/judges/llm.js';
export type { LikelihoodVerdicts, LikelihoodWeights } from './eval/likelihood.js';
export type { LikelihoodJudge, LikelihoodReport } from './eval/likelihood-report.js';
export type { McNemar } from './eval/mcnemar.js';
export {
  type Baselines,
  baselineMetrics,
  type ConfusionMetrics,
  type JudgedStep,
  rocAuc,
  type VerdictMetrics,
} from './eval/metrics.js';
export type { Difference, Differences } from './eval/paired.js';
export type { EvalReport, NetworkReport, OutcomeReport } from './eval/report.js';
export { formatEvalTable } from './eval/report-table.js';
export type { KnownProcessBenchScore, ProcessBenchReport, ProcessBenchScore } from './eval/solutions.js';
export type { Aggregation } from './eval/solving/aggregation.js';
export {
  compareSolving,
  formatSolvingComparison,
  type SolvingComparison,
  type SolvingDifference,
} from './eval/solving/comparison.js';
export type { CorrectionReport, OutputMetrics, PrefixMetrics } from './eval/solving/corrections.js';
export { readSolvedProblems, type SolvedProblem } from './eval/solving/dump.js';
export type { EqualTokenVotes } from './eval/solving/equal-tokens.js';
export {
  evaluateSolving,
  type SolvingOptions,
  type SolvingProgress,
  type SolvingResult,
} from './eval/solving/evaluate.js';
export type { Solution, SolutionScorer, StepJudge } from './eval/solving/judging.js';
export type { MetricOptions, MetricValue } from './eval/solving/metrics.js';
export { oracleJudge } from './eval/solving/oracle.js';
export type { SolvingPromptOptions } from './eval/solving/prompt.js';
export { formatSolvingTable, type SolvedGroup, type SolvingReport } from './eval/solving/report.js';
export { rewardModel } from './eval/solving/reward-model.js';
export type { SolvedGroups, SolvedReport } from './eval/solving/run-report.js';
export type { DrawnSample, GradedSample, SamplePlace, SolvingSample } from './eval/solving/sample.js';
export { scoreFile } from './eval/solving/score-file.js';
export type { SearchSettings } from './eval/solving/search.js';
export type { SolvingSamplingOptions } from './eval/solving/settings.js';
export { type StepScoreOptions, stepScores } from './eval/solving/step-scores.js';
export type { StepErrorMetrics, StepErrors, Told } from './eval/step-errors.js';
export type { StepScorer, StepScores, StepSolution } from './eval/step-scorer.js';
export type { ChosenThreshold, ScoredStep, ThresholdRow, ThresholdSweep } from './eval/thresholds.js';
export { type VerdictScorerOptions, verdictScorer } from './eval/verdict-scorer.js';
export { type JudgeOptions, judgeVerdicts } from './eval/verdicts.js';
// Generation
export { Conversation } from './generate/conversation.js';
export { Detokenizer, type DetokenizerOptions, detokenize } from './generate/detokenize.js';
export type { TokenLogprob } from './generate/drawn.js';
export type { Generation } from './generate/generation.js';
export {
  type GenerateOptions,
  Generator,
  type GeneratorLoad,
  type GeneratorOptions,
  type ResumeOptions,
} from './generate/generator.js';
export type { SamplingOptions } from './generate/options.js';
export { type Prompt, promptTokens } from './generate/prompts.js';
export type { FinishReason, GeneratedToken, Sample, SavedSample } from './generate/sample-row.js';
export {
  generatorSource,
  type SampleSource,
  type SourceOptions,
  type SourceSample,
} from './generate/sample-source.js';
export type { GenerationSnapshot, SavedOptions } from './generate/snapshot.js';
export {
  type EvaluateOptions,
  evaluate,
  type JudgeStepsOptions,
  judgeSolutions,
  judgeSteps,
  type StepJudgement,
  unlikeTraining,
} from './methods/judge.js';
export { ALGORITHMS, type Algorithm } from './methods/ppo/algorithms.js';
export {
  type RewardModelScorerOptions,
  type RewardModelSettings,
  rewardModelScorer,
} from './methods/reward/scorer.js';
// Runs, and the plug-ins of the loop of online learning
export { type ResumeRunOptions, resume, type TrainOptions, type TrainResult, train } from './methods/run.js';
export { type RewardScorerOptions, rewardScorer } from './methods/stepamc/reward/scorer.js';
export type { InputOf, MethodName, RunConfig, RunConfigInput } from './methods/table.js';
export {
  Adapter,
  createAdapter,
  type DropoutSource,
  loadAdapter,
} from './models/adapter.js';
export { createAdapterOn } from './models/adapter-on-base.js';
export { AdapterStack } from './models/adapter-stack.js';
export { type RaggedBatch, raggedBatch, type Sequence, type TokenBatch } from './models/batch.js';
export {
  Decoder,
  type DecoderOptions,
  type LinearHead,
  type Role,
  type Rounding,
  type StackedRole,
} from './models/decoder.js';
export {
  createHead,
  type HeadOptions,
  headOutputs,
  headRows,
  loadHead,
  roleHead,
  scalarOutputs,
  type TrainableHead,
} from './models/heads.js';
export { type FurtherHeads, type LoadOptions, loadDecoder, loadTrainableDecoder } from './models/load.js';
export { type MergeOptions, type MergeReport, mergeAdapter } from './models/merge.js';
export type { MergedAdapter, SavedForm } from './models/merged-adapter.js';
export { type SaveOptions, saveDecoder } from './models/save.js';
export { type GgufType, saveGguf } from './models/save-gguf.js';
export type { ModelFiles } from './models/saved.js';
export type { DeviceInfo, DeviceStats } from './native/addon.js';
export { DisposedError, StepTrainError } from './native/errors.js';
export { type BinaryItems, binaryCrossEntropy } from './objectives/binary.js';
// Objectives: loss, gradient and statistics of each in one launch
export { type KtoInputs, type KtoOptions, kto, ktoReference } from './objectives/kto.js';
export { bce, crossEntropy } from './objectives/likelihood.js';
export { nll } from './objectives/nll.js';
export { type DpoOptions, type DpoPairs, dpo, orpo, type Pairs, pairwise } from './objectives/pairs.js';
export { type KlEstimator, type PpoInputs, type PpoOptions, ppo } from './objectives/ppo.js';
export { type Objective, readStatistics, type Statistics } from './objectives/statistics.js';
export {
  type JudgedAnswer,
  type LevelStatistic,
  type Span,
  type StepKtoInputs,
  type StepKtoLevel,
  type StepKtoOptions,
  type StepKtoStatistic,
  type StepReduction,
  stepKto,
} from './objectives/step-kto.js';
export {
  type ConstraintForm,
  type VerdictConstraintInputs,
  verdictConstraint,
} from './objectives/verdict-constraint.js';
// Advantages, heads and rows
export {
  type GaeOptions,
  type GroupBaseline,
  gae,
  groupAdvantages,
  spanSum,
  type WhitenOptions,
  whiten,
} from './ops/advantage.js';
export type { RelativePositions } from './ops/disentangled-attention.js';
export type { LoraPair, StackedPairs } from './ops/gemm.js';
export {
  type HeadLogprobs,
  type HeadOptions as LogprobOptions,
  headLogits,
  headLogprobs,
  headSelect,
} from './ops/head.js';
export { cast, gatherRows, reshape } from './ops/memory.js';
export type { HeadNorms } from './ops/norm.js';
export type { Rotary, RotaryTable } from './ops/rope.js';
export {
  MESSAGE_EXTRAS,
  type Message,
  type MessageExtras,
  type Provenance,
  type Step,
  type StepKind,
  type StepLabel,
  type StepRecord,
  type VerdictSample,
  verdictSamples,
} from './records/record.js';
export { ChatClient, type ChatClientOptions, type ChatReply, type ChatSettings } from './remote/chat.js';
export { RemoteError } from './remote/errors.js';
export { type RemoteSourceOptions, remoteSource } from './remote/remote-source.js';
// Rewards of solutions
export { type FunctionRewardOptions, functionReward, type RewardFunction } from './rewards/function.js';
export {
  type MixedReward,
  type MixtureOptions,
  mixedRewards,
  type RewardMoments,
  type SourceWeight,
  type WeightedSource,
} from './rewards/mixture.js';
export { boundedSteps, type StepBound, stepEnds } from './rewards/placement.js';
export type { RewardedSolution, SolutionReward, SourceReward } from './rewards/reward.js';
export { answerReward, formatReward, lengthReward } from './rewards/rules.js';
export { type StepRewardOptions, stepScoreReward } from './rewards/step-scores.js';
export { Device, type DeviceOptions, type Ops, openDevice, Tensor } from './runtime/device.js';
export type { DType, TypedArray } from './runtime/dtype.js';
export type { Graph, GraphPool } from './runtime/graph.js';
export type { Made, OpsOf, Wanted } from './runtime/op-types.js';
// Forward of branched sequences, and the outputs read from it
export {
  type BatchSchedule,
  type BatchSettings,
  groupBySize,
  scheduleBatches,
} from './sequences/batching.js';
export {
  type ForwardSequence,
  type HiddenStates,
  hiddenStates,
  logprobsAt,
  type Rows,
  type ScoredRows,
  scalarsAt,
  scoreRows,
} from './sequences/forward.js';
export {
  type AnswerPlace,
  type AnswerRow,
  type BranchedAnswer,
  type BranchedSequence,
  branchedSequence,
  maskedSequence,
  type Target,
  type TrainingSequence,
  type VerdictRows,
  type VerdictSequence,
  verdictSequence,
} from './sequences/sequence.js';
// Serving
export type { Served } from './serve/engine.js';
export type { ServeLimits } from './serve/limits.js';
export { type RunningServer, type ServeOptions, serve } from './serve/server.js';
export type { ProgressPart } from './terminal/progress.js';
export { byteTokenizer } from './tokenizer/byte.js';
export { loadTokenizer } from './tokenizer/load.js';
export {
  type Segment,
  type SegmentRole,
  type SegmentSpan,
  type SegmentTokenizerOptions,
  type SequenceOptions,
  type StepSpan,
  segmentTokenizer,
  type TokenizedSequence,
} from './tokenizer/segments.js';
export type {
  ChatMessage,
  ChatTemplateOptions,
  DecodeOptions,
  EncodeOptions,
  Tokenizer,
} from './tokenizer/tokenizer.js';
// Optimizer
export { AdamW, type AdamWOptions, type OptimizerStep } from './train/adamw.js';
export { type GaeSettings, gaeAdvantage } from './train/policy/advantage.js';
export { KlControl, type KlSettings, klEstimate, withKlPenalty } from './train/policy/kl.js';
export type {
  Advantage,
  Answer,
  AnswerReward,
  Credit,
  CreditedGroup,
  Group,
  OwnOptimizer,
  PolicyGradients,
  PolicyObjective,
  RewardSource,
  Rewards,
  RolloutBatch,
  RolloutSource,
} from './train/policy/records.js';
export {
  type PolicyParts,
  type PolicySettings,
  type PolicyStageOptions,
  policyStage,
} from './train/policy/stage.js';
export type { RunResult } from './train/result.js';
export { learningRateAt, type ScheduleOptions } from './train/schedule.js';
export { type MixOptions, mixedBatches } from './train/solutions/mix.js';
export { type ConfiguredProblems, configuredProblems, type RunProblem } from './train/solutions/problems.js';
export {
  type SolutionPrompt,
  type SolutionPromptOptions,
  type SolutionPrompts,
  solutionPrompts,
} from './train/solutions/prompts.js';
export {
  type LocalSamplerOptions,
  localSampler,
  type SampledSolution,
  type SamplingRound,
  type SolutionSampler,
} from './train/solutions/sampler.js';
export type {
  Metrics,
  OpenTraining,
  SaveSettings,
  TrainingOutcome,
  TrainingSettings,
  TrainingStage,
} from './train/stage.js';
export type { StepEvent } from './train/step-event.js';
export { applyGradients, type Update } from './train/update.js';
export type { LoraConfig, TargetModules } from './weights/adapter-config.js';
export type { FloatDtype } from './weights/dtype.js';
export type { QuantizedName } from './weights/gguf/quantize.js';
export type { JsonObject, JsonValue } from './weights/json.js';
export type { LoraModule, LoraPlan, SavedWeight } from './weights/lora-plan.js';
export type { Initializer, ModuleKind } from './weights/modules.js';
